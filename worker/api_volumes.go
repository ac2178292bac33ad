package worker

import (
	"io"
	"net/http"

	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/codec"
)

// handleExports serves volumes and snapshots to other workers, as far as brokers
// have granted it.
func handleExports(mux *http.ServeMux, w *Worker) {
	fabric.VolumeExport.HandleFrom(mux, func(r *http.Request, e fabric.Export) (codec.Raw, error) {
		if err := w.volumes.Granted(e.ID, e.Grant, r.TLS); err != nil {
			return nil, err
		}
		m, err := w.volumes.Manifest(r.Context(), e.ID)
		if err != nil {
			return nil, err
		}
		return codec.Marshal(m)
	})
	fabric.VolumeRelease.HandleFrom(mux, func(r *http.Request, e fabric.Export) (struct{}, error) {
		if err := w.volumes.Granted(e.ID, e.Grant, r.TLS); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, w.volumes.Release(r.Context(), e.ID)
	})
	fabric.VolumeChunk.Handle(mux, w.handleChunk)
}

// handleChunk sends the bytes of one chunk. The receiver verifies what arrives.
func (w *Worker) handleChunk(rw http.ResponseWriter, r *http.Request, c fabric.Chunk) {
	if err := w.volumes.Granted(c.Of.ID, c.Of.Grant, r.TLS); err != nil {
		fabric.WriteFailure(rw, err)
		return
	}
	body := &chunkBody{rw: rw}
	err := w.volumes.Chunk(r.Context(), c.Of.ID, c.N, body)
	switch {
	case err == nil:
	case !body.begun:
		fabric.WriteFailure(rw, err)
	default:
		panic(http.ErrAbortHandler) // half of it is out: the caller must see that it ends here
	}
}

// chunkBody sends the header with the first byte, so that an error before it is
// still a proper failure.
type chunkBody struct {
	rw    http.ResponseWriter
	begun bool
}

var _ io.Writer = (*chunkBody)(nil)

// Write implements io.Writer.
func (b *chunkBody) Write(p []byte) (int, error) {
	if !b.begun {
		b.begun = true
		b.rw.Header().Set("Content-Type", "application/octet-stream")
	}
	return b.rw.Write(p)
}
