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

// ServeTunnel serves MachineTunnel: bytes go to and from conn, which it closes,
// until the machine ends its side or the caller leaves. When the caller ends
// its side, conn's own is ended. The handler answers with [WriteFailure] when
// there is no connection to be had. When the caller asks for that, the connection of
// the request becomes the tunnel: then the machine, too, may end its side alone.
func ServeTunnel(w http.ResponseWriter, r *http.Request, conn net.Conn) {
	if asksForTunnel(r) {
		becomeTunnel(w, r, conn)
		return
	}
	control := http.NewResponseController(w)
	BothWays(w, r)
	throttle.StreamBody(r)
	accept(w, control)
	stop := context.AfterFunc(r.Context(), func() { _ = conn.Close() })
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := io.Copy(conn, r.Body); err != nil {
			_ = conn.Close() // the caller left, or the machine did
			return
		}
		if c, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = c.CloseWrite()
		}
	})
	_, err := io.Copy(flushing{w, control}, conn)
	_ = conn.Close()
	_ = control.SetReadDeadline(time.Unix(1, 0)) // what the caller still sends has nowhere to go
	wg.Wait()
	if err != nil {
		panic(http.ErrAbortHandler) // a break is not the end
	}
}

// flushing sends what is written at once.
type flushing struct {
	w       io.Writer
	control *http.ResponseController
}

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err == nil {
		err = f.control.Flush()
	}
	return n, err
}

const (
	// halfOpen is how long one side may go on after the other has ended: not every
	// network says that a server is gone which has nothing more to send.
	halfOpen = time.Hour
	// acceptTime is how long a caller may not read that it has its tunnel.
	acceptTime = 5 * time.Second
)

// becomeTunnel joins the request's connection with the machine's until both sides
// have ended, either breaks, or the server closes.
func becomeTunnel(w http.ResponseWriter, r *http.Request, machine net.Conn) {
	defer machine.Close()
	caller, ahead, err := http.NewResponseController(w).Hijack()
	if err != nil {
		WriteFailure(w, bourse.Errorf(bourse.CodeInternal, "the connection cannot become a tunnel: %w", err))
		return
	}
	defer caller.Close()
	stop := context.AfterFunc(r.Context(), func() { breakOff(caller); _ = machine.Close() })
	defer stop()
	_ = caller.SetWriteDeadline(time.Now().Add(acceptTime)) // an error is the write's, too
	const yes = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + tunnelProtocol + "\r\n\r\n"
	if _, err := io.WriteString(caller, yes); err != nil {
		return
	}
	_ = caller.SetWriteDeadline(time.Time{})
	end := func(err error) {
		if err != nil { // of either: it is one of both
			breakOff(caller)
			_ = machine.Close()
		}
	}
	var both sync.WaitGroup
	both.Go(func() {
		var err error
		if n := ahead.Reader.Buffered(); n > 0 { // to write nothing would consume the error of a break
			_, err = io.CopyN(machine, ahead.Reader, int64(n))
		}
		if err == nil {
			err = pass(machine, caller)
		}
		end(err)
	})
	both.Go(func() { end(pass(caller, machine)) })
	both.Wait()
}

// pass copies until from ends, and ends to's side then.
func pass(to, from net.Conn) error {
	if _, err := io.Copy(to, from); err != nil {
		return err
	}
	_ = to.SetReadDeadline(time.Now().Add(halfOpen)) // an error is the next one's, too
	return closeWrite(to)
}
