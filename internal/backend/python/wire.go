package python

// The layout of the shared memory; python/shoal/_wire.py and _slot.py have the
// other end.
//
// The file's first page is a ring of entries, one for each batch that was sent.
// At its end are the number of entries, how many of them the worker has taken,
// and, when the thread that runs a batch calls another model, the call's slot plus
// 1 and where in it the message is. The slots follow. The server writes the first half of a slot: a
// header, a table of the inputs, the inputs, and other properties of the
// requests. The worker writes the second half: a header, the outputs and a
// table of them. The file is as long as its slots and sparse, so either half
// grows by mapping more of it. All numbers are little-endian.
const (
	span        = 1 << 36
	half        = span / 2
	pageSize    = 4096
	ringEntries = 128
	ringEntry   = 16
	sentAt      = pageSize - 8
	takenAt     = pageSize - 16
	callSizeAt  = pageSize - 24
	callAt      = pageSize - 32
	callSlotAt  = pageSize - 40
	headSize    = 64
	stampAt     = 40 // in our half's header
	mapsAt      = 48
	mapsCountAt = 56
	mapEntry    = 32 // bytes of a mapped row: offset in the slot, bytes, number of the file, offset there
	dataAlign   = 64

	// firstMap is how much of a half is mapped at first. Mapped memory costs
	// only addresses until it is written.
	firstMap = 1 << 20

	// maxTable bounds the table of a result, which is copied before it is
	// parsed.
	maxTable = 64 << 20
	// maxRank is the most dimensions of an output.
	maxRank = 32
)

// Flags of a batch's header.
const flagUncached = 1 // the table is not likely to occur again

// Flags of a result's header.
const resultKept = 1 // the handler holds inputs: the slot must not be reused

// allRequests stands for a request's number in an answer for all of them.
const allRequests = 1<<32 - 1

// Kinds of answers.
const (
	answerOutputs = 0
	answerError   = 1
)

// Sizes of a result's records.
const (
	answerSize = 16
	outputSize = 24
	paramSize  = 8
)

// Tags of a request's properties besides tensors.
const (
	tagID = iota + 1
	tagPriority
	tagTimeout
	tagSequence
	tagSequenceText
	tagFlags
	tagWanted
	tagParam
	tagTrace
)

// Kinds of frames on the socket, to the worker and from it.
const (
	frameInit = iota + 1
	frameClose
	frameCancel
	frameReply
	frameAnswer
	frameFile // with a file descriptor
	frameDrop
)

const (
	frameReady = iota + 1
	frameDescribed
	frameFailed
	frameLog
	frameMetric
	frameResponse
	frameWatch
	frameRoom
	frameImported
	frameSlot
	frameCall
	frameNext
	frameControl
)

func align(n int) int { return (n + dataAlign - 1) &^ (dataAlign - 1) }

// mapSize returns how much to map of a half that needs n bytes.
func mapSize(n int) int {
	size := firstMap
	for size < n {
		size *= 2
	}
	return min(size, half)
}
