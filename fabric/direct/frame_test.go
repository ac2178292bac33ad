package direct

import (
	"bufio"
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/fabric"
)

// FuzzFrame shows that any bytes read as a frame's header are written the same.
func FuzzFrame(f *testing.F) {
	for _, one := range []frame{{frameRequest, 1, 7}, {frameAnswer, 1<<64 - 1, 2}, {framePing, 0, 0}, {frameLeave, 3, 0}} {
		f.Add(one.append(nil))
	}
	f.Add(make([]byte, frameHeader))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < frameHeader {
			return
		}
		one, err := parseFrame(b)
		if err == nil && !bytes.Equal(one.append(nil), b[:frameHeader]) {
			t.Errorf("%x is written as %x", b[:frameHeader], one.append(nil))
		}
		if most := statusSize + fabric.MaxAnswer; one.size > most {
			t.Errorf("it holds %d bytes", one.size)
		}
	})
}

// heap is a connection that reads from memory, and takes what is written.
type heap struct {
	net.Conn
	io.Reader
}

func (h heap) Read(p []byte) (int, error)      { return h.Reader.Read(p) }
func (heap) Write(p []byte) (int, error)       { return len(p), nil }
func (heap) Close() error                      { return nil }
func (heap) SetWriteDeadline(time.Time) error  { return nil }
func frames(parts ...[]byte) (together []byte) { return slices.Concat(parts...) }

// FuzzLine reads what any worker may send: it never has more than one outcome
// for a call.
func FuzzLine(f *testing.F) {
	ok := append(frame{frameAnswer, 1, 4}.append(nil), 0, 200, 'o', 'k')
	f.Add(ok)
	f.Add(frames(frame{framePong, 0, 0}.append(nil), ok, ok, frame{frameBroken, 2, 0}.append(nil)))
	f.Add(frame{frameAnswer, 2, fabric.MaxAnswer}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		below := newNowait(heap{Reader: bytes.NewReader(b)})
		var work sync.WaitGroup
		l := newLine(below, below, &work, func() {})
		done := make(chan *call, 2)
		var calls [2]call
		for i := range calls {
			calls[i].done = done
			if _, _, err := l.begin(&calls[i], &fabric.Message{Method: "POST", URI: "/"}); err != nil {
				t.Fatal(err)
			}
		}
		l.flush()
		r := bufio.NewReader(l)
		var err error
		for err == nil {
			err = l.hear(r)
		}
		l.end(err)
		work.Wait()
		if len(done) != len(calls) { // more would have been stuck
			t.Errorf("%d outcomes", len(done))
		}
	})
}

// FuzzInbound reads what any caller may send: every call that is served ends.
func FuzzInbound(f *testing.F) {
	post := append(frame{frameRequest, 1, 10}.append(nil), "\x04POST\x02/x{}"...)
	f.Add(post)
	f.Add(frames(post, frame{frameLeave, 1, 0}.append(nil), frame{framePing, 0, 0}.append(nil), post, post))
	f.Add(frame{frameRequest, 2, maxRequest}.append(nil))
	f.Fuzz(func(_ *testing.T, b []byte) {
		d := newDesk(slog.New(slog.DiscardHandler))
		conn := heap{Reader: bytes.NewReader(b)}
		in := newInbound(d, conn, bufio.NewReader(conn), new(http.Request), http.NotFoundHandler())
		d.enter(in)
		d.refuse()
		d.close()
	})
}
