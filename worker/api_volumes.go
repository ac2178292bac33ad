package worker

import (
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/volume"
)

func (w *Worker) handleVolumes(mux *http.ServeMux) {
	mux.HandleFunc(fabric.PathVolumes, reply(func(r *http.Request) ([]bourse.Volume, error) {
		q := r.URL.Query()
		deleted := q.Get("deleted") == "true"
		name, app := queryApp(q)
		return w.listVolumes(r.Context(), app, func(v *bourse.Volume) bool {
			return (name == "" || v.App == name) && (deleted || living(v))
		})
	}))
	mux.HandleFunc(fabric.PathVolume, reply(func(r *http.Request) (bourse.Volume, error) {
		return w.usedVolume(r.Context(), volumeID(r))
	}))
	mux.HandleFunc(fabric.PathVolumeChange, take(func(r *http.Request, c *fabric.VolumeChange) (bourse.Volume, error) {
		return w.keepVolume(r.Context(), volumeID(r), *c)
	}))
	mux.HandleFunc(fabric.PathVolumeExtend, take(func(r *http.Request, e *fabric.ExtendRequest) (bourse.Volume, error) {
		return w.extendVolume(r.Context(), volumeID(r), e.SizeGB)
	}))
	mux.HandleFunc(fabric.PathVolumeDestroy, reply(func(r *http.Request) (bourse.Volume, error) {
		return w.destroyVolume(r.Context(), volumeID(r))
	}))
	mux.HandleFunc(fabric.PathSnapshot, reply(func(r *http.Request) (bourse.Snapshot, error) {
		return w.snapshot(r.Context(), volumeID(r))
	}))
	mux.HandleFunc(fabric.PathGrant, take(func(r *http.Request, g *fabric.GrantRequest) (fabric.Grant, error) {
		grant, err := w.grant(r.Context(), r.PathValue("volume"), g, time.Now())
		return fabric.Grant{Grant: grant}, err
	}))
	mux.HandleFunc(fabric.PathExport, reply(func(r *http.Request) (volume.Manifest, error) {
		if err := w.granted(r); err != nil {
			return volume.Manifest{}, err
		}
		return w.manifest(r.Context(), r.PathValue("volume"))
	}))
	mux.HandleFunc(fabric.PathExportEnd, reply(func(r *http.Request) (struct{}, error) {
		if err := w.granted(r); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, w.giveBack(r.Context(), r.PathValue("volume"))
	}))
	mux.HandleFunc(fabric.PathChunk, w.handleChunk)
}

func volumeID(r *http.Request) bourse.VolumeID { return bourse.VolumeID(r.PathValue("volume")) }

// handleChunk sends the bytes of one chunk. What arrives is for the receiver
// to verify.
func (w *Worker) handleChunk(rw http.ResponseWriter, r *http.Request) {
	n, err := queryInt(r, "n")
	if err == nil {
		err = w.granted(r)
	}
	if err != nil {
		fabric.WriteFailure(rw, err)
		return
	}
	body := &chunkBody{rw: rw}
	err = w.chunk(r.Context(), r.PathValue("volume"), n, body)
	switch {
	case err == nil:
	case !body.begun:
		fabric.WriteFailure(rw, err)
	default:
		panic(http.ErrAbortHandler) // the only way to say so
	}
}

// chunkBody sends the header with the first byte, so that an error before it is
// still a proper failure.
type chunkBody struct {
	rw    http.ResponseWriter
	begun bool
}

// Write implements io.Writer.
func (b *chunkBody) Write(p []byte) (int, error) {
	if !b.begun {
		b.begun = true
		b.rw.Header().Set("Content-Type", "application/octet-stream")
	}
	return b.rw.Write(p)
}
