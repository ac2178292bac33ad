package query

import (
	"net/http"
	"strconv"
	"time"

	"github.com/bourse-dev/bourse"
)

// lineBuffer is the number of bytes that are collected before they are sent.
const lineBuffer = 32 << 10

// lines sends lines of JSON to a client. A write fails if the client does not accept the data in
// time.
type lines struct {
	w      http.ResponseWriter
	status int
	stall  time.Duration // time limit for each write
	buf    []byte
	sent   int // number of bytes sent, including those that are still in buf
	begun  bool
}

// add queues one line, which must not end with a newline.
func (l *lines) add(line []byte) error {
	l.buf = append(append(l.buf, line...), '\n')
	l.sent += len(line) + 1
	if len(l.buf) < lineBuffer {
		return nil
	}
	return l.flush()
}

// flush sends the queued lines.
func (l *lines) flush() error {
	control := http.NewResponseController(l.w)
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", TypeLines)
		l.w.Header().Set("Cache-Control", "no-store")
		l.w.WriteHeader(l.status)
	}
	// Ignore the error: a writer that does not support deadlines, such as a test's recorder, never
	// blocks.
	_ = control.SetWriteDeadline(time.Now().Add(l.stall))
	defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
	_, err := l.w.Write(l.buf)
	l.buf = l.buf[:0]
	if err != nil {
		return err
	}
	_ = control.Flush() // a writer that does not support flushing sends the lines later
	return nil
}

// fail sends err as the last line.
func (l *lines) fail(err error) error {
	b := append(l.scratch(), `{"error":{"code":`...)
	b = appendString(b, string(bourse.CodeOf(err)))
	b = append(b, `,"message":`...)
	b = appendString(b, bourse.MessageOf(err))
	if err := l.add(append(b, "}}"...)); err != nil {
		return err
	}
	return l.flush()
}

func (l *lines) columns(names []string) error {
	return l.add(append(appendStrings(append(l.scratch(), `{"columns":`...), names), '}'))
}

func (l *lines) end(rows int, took time.Duration, truncated bool) error {
	b := strconv.AppendInt(append(l.scratch(), `{"end":{"rows":`...), int64(rows), 10)
	b = strconv.AppendInt(append(b, `,"ms":`...), took.Milliseconds(), 10)
	b = strconv.AppendBool(append(b, `,"truncated":`...), truncated)
	if err := l.add(append(b, "}}"...)); err != nil {
		return err
	}
	return l.flush()
}

func (l *lines) scratch() []byte { return make([]byte, 0, 256) }
