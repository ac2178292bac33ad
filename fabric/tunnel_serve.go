package fabric

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/throttle"
)

// ServeTunnel serves MachineTunnel. It copies bytes between the caller and the machine, whose connection is conn, until
// the machine finishes sending or the caller disconnects. It then closes conn. If the caller only finishes sending, the
// machine may continue to send. If the handler cannot connect to the machine, it must call [WriteFailure] instead. If
// the caller requested an upgrade, the request's connection becomes the tunnel. In that case, the caller may also
// continue to send after the machine has finished.
func ServeTunnel(w http.ResponseWriter, r *http.Request, conn net.Conn) {
	if asksForTunnel(r) {
		serveTunnel(w, r, conn)
		return
	}
	control := http.NewResponseController(w)
	PrepareDuplexReply(w, r)
	throttle.StreamBody(r)
	accept(w, control)
	stop := context.AfterFunc(r.Context(), func() { _ = conn.Close() })
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := io.Copy(conn, r.Body); err != nil {
			_ = conn.Close() // the caller or the machine has disconnected
			return
		}
		if c, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = c.CloseWrite()
		}
	})
	_, err := io.Copy(flushWriter{w, control}, conn)
	_ = conn.Close()
	_ = control.SetReadDeadline(time.Unix(1, 0)) // stops the goroutine that reads the caller's data
	wg.Wait()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// flushWriter is a writer that flushes after every write.
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

const (
	// halfOpenTimeout is how long one side may continue to send after the other side has finished. The limit is
	// necessary because on some networks, a side never learns that the other one has disappeared.
	halfOpenTimeout = time.Hour
	// acceptTimeout is how long a caller may take to read the response that accepts its tunnel.
	acceptTimeout = 5 * time.Second
)

// serveTunnel upgrades the request's connection and copies data between it and the machine's connection, until both
// sides have finished sending, either connection breaks, or the server closes.
func serveTunnel(w http.ResponseWriter, r *http.Request, machine net.Conn) {
	defer machine.Close()
	caller, ahead, err := http.NewResponseController(w).Hijack()
	if err != nil {
		WriteFailure(w, bourse.Errorf(bourse.CodeInternal, "the connection cannot become a tunnel: %w", err))
		return
	}
	defer caller.Close()
	stop := context.AfterFunc(r.Context(), func() { abort(caller); _ = machine.Close() })
	defer stop()
	_ = caller.SetWriteDeadline(time.Now().Add(acceptTimeout)) // if this fails, the write fails with the same error
	const yes = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + tunnelProtocol + "\r\n\r\n"
	if _, err := io.WriteString(caller, yes); err != nil {
		return
	}
	_ = caller.SetWriteDeadline(time.Time{})
	end := func(err error) {
		if err != nil { // if one connection fails, close both
			abort(caller)
			_ = machine.Close()
		}
	}
	var both sync.WaitGroup
	both.Go(func() {
		var err error
		if n := ahead.Reader.Buffered(); n > 0 { // skip an empty write, which would hide the error of a broken connection
			_, err = io.CopyN(machine, ahead.Reader, int64(n))
		}
		if err == nil {
			err = copyOneWay(machine, caller)
		}
		end(err)
	})
	both.Go(func() { end(copyOneWay(caller, machine)) })
	both.Wait()
}

// copyOneWay copies data from src to dst until src has finished sending, and then finishes sending to dst. From then
// on, the other direction, from dst to src, may continue for at most halfOpenTimeout.
func copyOneWay(dst, src net.Conn) error {
	if _, err := io.Copy(dst, src); err != nil {
		return err
	}
	_ = dst.SetReadDeadline(time.Now().Add(halfOpenTimeout)) // if this fails, the next read fails with the same error
	return closeWrite(dst)
}
