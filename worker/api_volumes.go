package worker

import (
	"net/http"

	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/volume"
)

// handleExports serves volumes and snapshots to other workers, as far as brokers
// have granted it.
func handleExports(mux *http.ServeMux, w *Worker) {
	fabric.VolumeExport.Handle(mux, func(rw http.ResponseWriter, r *http.Request, e fabric.Export) {
		body := &exportBody{rw: rw}
		err := w.volumes.Granted(e.ID, e.Grant, r.TLS)
		if err == nil {
			err = w.volumes.Export(r.Context(), e.ID, volume.Position{Moment: e.Moment, Offset: e.Offset}, body)
		}
		switch {
		case err == nil:
		case !body.begun:
			fabric.WriteFailure(rw, err)
		default:
			panic(http.ErrAbortHandler) // the caller must see that the stream is not complete
		}
	})
}

// exportBody sends the response's header with the first byte, so that an error
// before it is still a proper failure.
type exportBody struct {
	rw    http.ResponseWriter
	begun bool
}

// Write implements io.Writer.
func (b *exportBody) Write(p []byte) (int, error) {
	if !b.begun {
		b.begun = true
		b.rw.Header().Set("Content-Type", "application/octet-stream")
	}
	return b.rw.Write(p)
}
