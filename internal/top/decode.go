package top

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/encoding/protodelim"

	"shoal/internal/client"
)

// readIndex adds a repository index to the sample.
func (s *Sample) readIndex(body []byte) error {
	list, err := client.ParseIndex(body)
	for _, e := range list {
		m := s.at(e.GetName(), e.GetVersion())
		m.State, m.Reason = e.GetState(), e.GetReason()
	}
	return err
}

// readStats adds statistics to the sample.
func (s *Sample) readStats(body []byte) error {
	list, err := client.ParseStatistics(body)
	for _, in := range list {
		of := in.GetInferenceStats()
		s.at(in.GetName(), in.GetVersion()).Stats = &Stats{
			Success: float64(of.GetSuccess().GetCount()), SuccessNs: float64(of.GetSuccess().GetNs()),
			Fail: float64(of.GetFail().GetCount()), QueueNs: float64(of.GetQueue().GetNs()),
			Inferences: float64(in.GetInferenceCount()), Executions: float64(in.GetExecutionCount()),
		}
	}
	return err
}

// acceptMetrics asks for native histograms, and accepts text from servers that
// have none.
const acceptMetrics = `application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,text/plain;version=0.0.4;q=0.5,*/*;q=0.1`

// readMetrics adds metrics to the sample, in the format of the header.
func (s *Sample) readMetrics(header http.Header, body []byte) error {
	if expfmt.ResponseFormat(header).FormatType() == expfmt.TypeProtoDelim {
		return s.readProtobuf(body)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return err
	}
	for _, f := range families {
		s.take(f)
	}
	return nil
}

// readProtobuf reads length-delimited messages. The library's decoder trusts
// the lengths, and would allocate as much memory as a broken one says.
func (s *Sample) readProtobuf(body []byte) error {
	from := bytes.NewReader(body)
	bounded := protodelim.UnmarshalOptions{MaxSize: int64(len(body))}
	for {
		f := &dto.MetricFamily{}
		if err := bounded.UnmarshalFrom(from, f); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		s.take(f)
	}
}

// take adds one family if it is used here.
func (s *Sample) take(f *dto.MetricFamily) {
	if f.GetName() == "nv_cpu_utilization" && len(f.GetMetric()) > 0 {
		s.CPU = finite(f.GetMetric()[0].GetGauge().GetValue())
		return
	}
	for _, m := range f.GetMetric() {
		if s.takeGPU(f.GetName(), m) {
			continue
		}
		switch f.GetName() {
		case "shoal_requests_rejected_total":
			s.takeRejects(m)
			continue
		case "shoal_connections_closed_total":
			s.Closed.add(m)
			continue
		}
		name, version := labelOf(m, "model"), labelOf(m, "version")
		to := s.find(name, version)
		if to == nil {
			continue
		}
		switch f.GetName() {
		case "nv_inference_pending_request_count":
			to.Queue = finite(m.GetGauge().GetValue())
		case "shoal_requests_refused_total":
			to.Refused = finite(m.GetCounter().GetValue())
		case "shoal_instances":
			to.Instances = finite(m.GetGauge().GetValue())
		case "shoal_instances_busy":
			to.Busy = finite(m.GetGauge().GetValue())
		case "shoal_instance_busy_seconds_total":
			to.BusySeconds = finite(m.GetCounter().GetValue())
		case "shoal_batches_total":
			if to.BatchesByReason == nil {
				to.BatchesByReason = make(map[string]float64)
			}
			if n := finite(m.GetCounter().GetValue()); n != nil {
				to.BatchesByReason[labelOf(m, "reason")] = *n
			}
		case "shoal_request_duration_seconds":
			to.RequestTime = newSpread(m.GetHistogram())
		case "shoal_queue_duration_seconds":
			to.QueueTime = newSpread(m.GetHistogram())
		}
	}
}

// finite returns a value that can be shown, nil for NaN and infinities.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
