"""What a handler knows about its model, its requests and their answers."""


class Context:
    """The same object for a worker's whole life; the requests' fields are replaced for each batch."""

    def __init__(self, model_name, model_dir, manifest, batch_size, gpu, mms_version, **more):
        self.model_name = model_name
        self.manifest = manifest
        self._system_properties = {
            "model_dir": model_dir,
            "gpu_id": gpu,
            "batch_size": batch_size,
            "server_name": "MMS",
            "server_version": mms_version,
            **more,
        }
        self.request_ids = None
        self.request_processor = [RequestProcessor({})]
        self._metrics = None

    @property
    def system_properties(self):
        """model_dir, gpu_id, batch_size, server_name and server_version."""
        return self._system_properties

    @property
    def metrics(self):
        """The metrics of the batch."""
        return self._metrics

    @metrics.setter
    def metrics(self, metrics):
        self._metrics = metrics

    def get_request_id(self, idx=0):
        """The id of a request."""
        return self.request_ids.get(idx) if self.request_ids else None

    def get_request_header(self, idx, key):
        """A header of a request, None when it has none."""
        return self.request_processor[idx].get_request_property(key)

    def get_all_request_header(self, idx):
        """All headers of a request, and the content types of its parts."""
        return self.request_processor[idx].get_request_properties()

    def set_response_content_type(self, idx, value):
        """Set the content type of an answer."""
        self.set_response_header(idx, "content-type", value)

    def get_response_content_type(self, idx):
        """The content type of an answer."""
        return self.get_response_headers(idx).get("content-type")

    def set_response_header(self, idx, key, value):
        """Set a header of an answer."""
        self.request_processor[idx].add_response_property(key, value)

    def get_response_headers(self, idx):
        """The headers of an answer."""
        return self.request_processor[idx].get_response_headers()

    def set_response_status(self, code=200, phrase="", idx=0):
        """Set the status of an answer."""
        if self.request_processor is not None and self.request_processor[idx] is not None:
            self.request_processor[idx].report_status(code, reason_phrase=phrase)

    def set_all_response_status(self, code=200, phrase=""):
        """Set the status of all answers."""
        for processor in self.request_processor:
            processor.report_status(code, reason_phrase=phrase)

    def get_response_status(self, idx):
        """The status and the phrase of an answer."""
        p = self.request_processor[idx]
        return p.get_response_status_code(), p.get_response_status_phrase()

    def __eq__(self, other):
        return isinstance(other, Context) and self.__dict__ == other.__dict__

    __hash__ = object.__hash__


class RequestProcessor:
    """One request: its headers, and the status and headers of its answer."""

    def __init__(self, request_header):
        self._status_code = 200
        self._reason_phrase = None
        self._response_header = {}
        self._request_header = request_header

    def get_request_property(self, key):
        """A header of the request."""
        return self._request_header.get(key)

    def report_status(self, code, reason_phrase=None):
        """Set the answer's status."""
        self._status_code = code
        self._reason_phrase = reason_phrase

    def get_response_status_code(self):
        """The answer's status."""
        return self._status_code

    def get_response_status_phrase(self):
        """The answer's phrase."""
        return self._reason_phrase

    def add_response_property(self, key, value):
        """Set a header of the answer."""
        self._response_header[key] = value

    def get_response_headers(self):
        """The answer's headers."""
        return self._response_header

    def get_response_header(self, key):
        """A header of the answer."""
        return self._response_header.get(key)

    def get_request_properties(self):
        """The request's headers."""
        return self._request_header
