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

// machineUsage returns a machine's resource usage and limits.
func (h *machineHandler) machineUsage(w http.ResponseWriter, r *endpoint.Request) error {
	to, err := h.targetOf(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.Timeout)
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

// milliseconds converts d to milliseconds. It returns -1 (unknown) unchanged.
func milliseconds(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return d.Milliseconds()
}

// execStream runs a command, streaming its input and output. It forwards the request's and the reply's frames without
// decoding them.
func (h *machineHandler) execStream(w http.ResponseWriter, r *endpoint.Request) error {
	to, err := h.targetOf(r)
	if err != nil {
		return err
	}
	return h.pass(w, r, to, func(body io.ReadCloser) (io.ReadCloser, error) {
		return fabric.MachineAttach.Open(r.Context(), h.Workers, to.worker, to.id, body)
	})
}

// tunnel forwards bytes between the caller and a TCP port of a machine.
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

// pass forwards the body of a request to a worker and, at the same time, the worker's reply to the caller. When either
// stream is closed, the other is closed as well. open sends the request to the worker and returns the body of the
// worker's reply.
func (h *machineHandler) pass(w http.ResponseWriter, r *endpoint.Request, to target, open func(io.ReadCloser) (io.ReadCloser, error)) error {
	control := http.NewResponseController(w)
	fabric.PrepareDuplexReply(w, r.Request)
	throttle.StreamBody(r.Request)
	body := &borrowedBody{from: r.Body}
	defer body.detach()
	// On return, cancel a pending read of the body instead of waiting for it.
	defer func() { _ = control.SetReadDeadline(time.Unix(1, 0)) }()
	reply, err := open(body)
	if err != nil {
		return endpoint.WorkerError(r.Context(), to.worker.ID, endpoint.Changing, err)
	}
	defer func() { _ = reply.Close() }()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.WriteHeader(http.StatusOK)
	_ = control.Flush() // if the writer cannot flush, the header is sent later
	_, err = io.Copy(flushWriter{w, control}, reply)
	if r.Context().Err() != nil {
		return nil // the caller has disconnected
	}
	return err
}

// flushWriter flushes after every write.
type flushWriter struct {
	w       io.Writer
	control *http.ResponseController
}

func (f flushWriter) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err == nil {
		err = f.control.Flush()
	}
	return n, err
}

// borrowedBody is the body of a request while a transport uses it. The transport may still read it
// after the request has ended, unless detach is called.
type borrowedBody struct {
	from io.Reader
	mu   sync.Mutex // held during each read
	over bool
}

func (l *borrowedBody) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return 0, http.ErrBodyReadAfterClose
	}
	return l.from.Read(p)
}

// Close does nothing, because the server closes the body.
func (l *borrowedBody) Close() error { return nil }

// detach waits for a pending read and prevents further reads.
func (l *borrowedBody) detach() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
}
