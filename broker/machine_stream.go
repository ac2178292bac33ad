package broker

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/throttle"
	"github.com/bourse-dev/bourse/machinesapi"
)

// machineUsage tells what a machine uses, beside what it may.
func (h *machineHandler) machineUsage(w http.ResponseWriter, r *endpoint.Request) error {
	to, err := h.targetOf(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.Patience)
	defer cancel()
	u, err := fabric.MachineUsage.Call(ctx, h.Workers, to.worker, to.id)
	if err != nil {
		return endpoint.WorkerError(r.Context(), to.worker.ID, endpoint.Reading, err)
	}
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.Usage{
		At: u.At.UTC(), CPUMS: milliseconds(u.CPU), Throttled: milliseconds(u.Throttled), CPUs: u.CPUs, CPULimit: u.MayCPUs,
		Memory: u.Memory, MemLimit: u.MayMemory, PIDs: u.PIDs, Read: u.ReadByte, Written: u.WriteByte, Tasks: u.Tasks,
	})
}

// milliseconds keeps -1, which means that it is not known.
func milliseconds(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return d.Milliseconds()
}

// execStream runs a command whose input and output stream: the frames that the
// request's body and the reply are made of pass unread.
func (h *machineHandler) execStream(w http.ResponseWriter, r *endpoint.Request) error {
	to, err := h.targetOf(r)
	if err != nil {
		return err
	}
	return h.pass(w, r, to, func(body io.ReadCloser) (io.ReadCloser, error) {
		return fabric.MachineAttach.Open(r.Context(), h.Workers, to.worker, to.id, body)
	})
}

// tunnel passes bytes to a TCP port of a machine, and back.
func (h *machineHandler) tunnel(w http.ResponseWriter, r *endpoint.Request) error {
	text := r.URL.Query().Get("port")
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return bourse.Errorf(bourse.CodeInvalid, "invalid port %s: use 1 to 65535", bourse.Quoted(text))
	}
	to, err := h.targetOf(r)
	if err != nil {
		return err
	}
	return h.pass(w, r, to, func(body io.ReadCloser) (io.ReadCloser, error) {
		return fabric.MachineTunnel.Open(r.Context(), h.Workers, to.worker, fabric.TunnelRequest{Machine: to.id, Port: uint16(port)}, body)
	})
}

// pass lets a request's body through to a worker while its reply comes back.
// When either side breaks off, so does the other.
func (h *machineHandler) pass(w http.ResponseWriter, r *endpoint.Request, to target, open func(io.ReadCloser) (io.ReadCloser, error)) error {
	control := http.NewResponseController(w)
	fabric.BothWays(w, r.Request)
	throttle.StreamBody(r.Request)
	body := &lent{from: r.Body}
	defer body.takeBack()
	// What reads the body now must not keep us.
	defer func() { _ = control.SetReadDeadline(time.Unix(1, 0)) }()
	reply, err := open(body)
	if err != nil {
		return endpoint.WorkerError(r.Context(), to.worker.ID, endpoint.Changing, err)
	}
	defer func() { _ = reply.Close() }()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.WriteHeader(http.StatusOK)
	_ = control.Flush() // a writer that cannot flush sends later
	_, err = io.Copy(flushed{w, control}, reply)
	if r.Context().Err() != nil {
		return nil // the caller has left
	}
	return err
}

// flushed sends what is written at once.
type flushed struct {
	w       io.Writer
	control *http.ResponseController
}

func (f flushed) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err == nil {
		err = f.control.Flush()
	}
	return n, err
}

// lent is a request's body in the hands of a transport, which may read it later
// than the request lives.
type lent struct {
	from io.Reader
	mu   sync.Mutex // held while it is read
	over bool
}

func (l *lent) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return 0, http.ErrBodyReadAfterClose
	}
	return l.from.Read(p)
}

// Close does nothing: the server closes the body itself.
func (l *lent) Close() error { return nil }

// takeBack waits until no one reads, and lets no one read any more.
func (l *lent) takeBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
}
