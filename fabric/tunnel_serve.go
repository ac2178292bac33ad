package fabric

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/bourse-dev/bourse/internal/bodies"
)

// ServeTunnel serves PathTunnel: bytes go to and from conn, which it closes,
// until the machine ends its side or the caller leaves. When the caller ends
// its side, conn's own is ended. The handler answers with [WriteFailure] when
// there is no connection to be had.
func ServeTunnel(w http.ResponseWriter, r *http.Request, conn net.Conn) {
	control := http.NewResponseController(w)
	BothWays(w, r)
	bodies.Stream(r)
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
