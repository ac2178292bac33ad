package direct

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

const (
	callsOnce = 4096 // calls that are served at a time; more are turned away
	// idleCrew is how many goroutines wait for the next call: a new one would
	// grow its stack again, which costs as much as everything else here.
	idleCrew = 64
)

// desk is where a server serves calls. On each connection one goroutine of the crew
// reads; one that has read a request leaves the reading to another and serves it.
// So a request is served by the goroutine that the system woke for it.
type desk struct {
	log  *slog.Logger
	work sync.WaitGroup
	next chan *inbound // to be read by an idle one; buffered for all
	gone chan struct{} // closed when nothing comes any more
	free chan struct{} // closed when no call is left, and it is closing

	mu      sync.Mutex // taken under no other lock
	open    map[*inbound]bool
	most    int // calls at a time
	busy    int // calls in progress
	idle    int // goroutines that wait
	closing bool
}

func newDesk(log *slog.Logger) *desk {
	return &desk{
		log: log, most: callsOnce, open: map[*inbound]bool{},
		next: make(chan *inbound, idleCrew), gone: make(chan struct{}), free: make(chan struct{}),
	}
}

// deskKey is the key of a server's desk in the contexts of its requests.
type deskKey struct{}

// asksForCalls reports whether a request asks to go on in frames.
func asksForCalls(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Path == callsPath && r.Header.Get("Upgrade") == callsProtocol
}

// takeCalls has handler serve calls on the connection of a request that asks
// for it.
func takeCalls(w http.ResponseWriter, r *http.Request, handler http.Handler) {
	d, ok := r.Context().Value(deskKey{}).(*desk)
	if !ok || r.ProtoMajor != 1 {
		http.NotFound(w, r)
		return
	}
	d.mu.Lock()
	closing := d.closing
	d.mu.Unlock()
	if closing {
		fabric.WriteFailure(w, bourse.Errorf(bourse.CodeUnavailable, "%w", errClosing))
		return
	}
	conn, ahead, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.NotFound(w, r)
		return
	}
	in := newInbound(d, conn, ahead.Reader, r, handler)
	if !d.enter(in) {
		in.end()
	}
}

// enter adds a connection, unless the desk has closed.
func (d *desk) enter(in *inbound) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing {
		return false
	}
	d.open[in] = true
	d.work.Go(func() {
		in.say(nil) // what it begins with
		d.crew(in)
	})
	return true
}

func (d *desk) leave(in *inbound) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, in)
}

var errBusy = errors.New("too many calls are under way")

// begin counts a call, and leaves its connection for another to read; or returns
// why it is not served.
func (d *desk) begin(in *inbound) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closing:
		return errClosing
	case d.busy >= d.most:
		return errBusy
	}
	d.busy++
	if d.idle > 0 {
		d.idle--
		d.next <- in
	} else {
		d.work.Go(func() { d.crew(in) })
	}
	return nil
}

// end ends a call. It reports whether to wait for another.
func (d *desk) end() (more bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy--; d.busy == 0 && d.closing {
		close(d.free)
	}
	if d.idle == idleCrew {
		return false
	}
	d.idle++
	return true
}

// crew reads a connection until there is a call on it, which it serves; and then
// others.
func (d *desk) crew(in *inbound) {
	for {
		c := in.read()
		if c == nil {
			return // it has ended
		}
		in.serve(c)
		if !d.end() {
			return
		}
		select {
		case in = <-d.next:
		case <-d.gone:
			return
		}
	}
}

// refuse takes no more calls.
func (d *desk) refuse() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closing {
		d.closing = true
		if d.busy == 0 {
			close(d.free)
		}
	}
}

// abort takes no more calls, and breaks all connections.
func (d *desk) abort() {
	d.refuse()
	for _, in := range d.all() {
		in.end()
	}
}

// wait waits for calls to end. It reports whether they ended before ctx did.
func (d *desk) wait(ctx context.Context) bool {
	select {
	case <-d.free:
	case <-ctx.Done():
	}
	select {
	case <-d.free:
		return true
	default:
		return false
	}
}

// close cancels the calls that are left, waits for them and then closes all
// connections. It comes after refuse.
func (d *desk) close() {
	for _, in := range d.all() {
		in.cut(errClosing)
	}
	<-d.free
	for _, in := range d.all() {
		in.finish()
	}
	close(d.gone)
	d.work.Wait()
}

func (d *desk) all() []*inbound {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]*inbound, 0, len(d.open))
	for in := range d.open {
		out = append(out, in)
	}
	return out
}
