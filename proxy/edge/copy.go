package edge

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// bufferSize is what is read at once of a stream.
const bufferSize = 16 << 10

// buffers are shared by streams: one that waits for bytes has one all the same.
var buffers = sync.Pool{New: func() any { return new(make([]byte, bufferSize)) }}

func isEnd(err error) bool { return errors.Is(err, io.EOF) }

// idle ends a stream on which no bytes have passed for a time.
type idle struct {
	after time.Duration
	timer *time.Timer
	last  atomic.Int64 // when bytes last passed, of the monotonic clock
	began time.Time
	over  atomic.Bool
}

// newIdle returns what calls end once no bytes have passed for so long; 0 is never.
func newIdle(after time.Duration, end func()) *idle {
	i := &idle{after: after, began: time.Now()}
	if after <= 0 {
		return i
	}
	i.timer = time.AfterFunc(after, func() {
		if rest := after - (time.Since(i.began) - time.Duration(i.last.Load())); rest > 0 {
			i.timer.Reset(rest)
			return
		}
		i.over.Store(true)
		end()
	})
	return i
}

func (i *idle) moved() {
	if i.timer != nil {
		i.last.Store(int64(time.Since(i.began)))
	}
}

func (i *idle) expired() bool { return i.over.Load() }

func (i *idle) stop() {
	if i.timer != nil {
		i.timer.Stop()
	}
}
