package logsink

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"time"
)

// SlogNotice returns a Notice in the format of the handlers that newHandler
// makes.
func SlogNotice(newHandler func(*bytes.Buffer) slog.Handler) func(lines uint64) []byte {
	return func(lines uint64) []byte {
		var b bytes.Buffer
		r := slog.NewRecord(time.Now(), slog.LevelWarn, noticeText(lines), 0)
		_ = newHandler(&b).Handle(context.Background(), r) // a buffer does not fail
		return b.Bytes()
	}
}

func plainNotice(lines uint64) []byte { return []byte(noticeText(lines) + "\n") }

func noticeText(lines uint64) string {
	return fmt.Sprintf("%d log lines were dropped here: the log could not be written, or not fast enough", lines)
}
