package worker

import (
	"net/http"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

func (w *Worker) handleImages(mux *http.ServeMux) {
	mux.HandleFunc(fabric.PathImages, reply(func(r *http.Request) ([]bourse.Image, error) {
		if w.cfg.Images == nil {
			return []bourse.Image{}, nil
		}
		return w.cfg.Images.List(r.Context())
	}))
	mux.HandleFunc(fabric.PathImagePrune, reply(func(r *http.Request) ([]bourse.Image, error) {
		if w.cfg.Images == nil {
			return []bourse.Image{}, nil
		}
		return w.cfg.Images.Prune(r.Context())
	}))
	mux.HandleFunc(fabric.PathImagePull, w.handlePull)
}

// pullEvery bounds how often progress of a pull is sent.
const pullEvery = 250 * time.Millisecond

// handlePull pulls an image, and streams how far it has come as NDJSON.
func (w *Worker) handlePull(rw http.ResponseWriter, r *http.Request) {
	var req fabric.PullRequest
	if err := fabric.ReadBody(rw, r, &req); err != nil {
		fabric.WriteFailure(rw, err)
		return
	}
	if err := w.mayPull(req.Image); err != nil {
		fabric.WriteFailure(rw, err)
		return
	}
	ctx := r.Context()
	ref, err := w.cfg.Images.Resolve(ctx, "", req.Image)
	if err != nil {
		fabric.WriteFailure(rw, err)
		return
	}
	out := newStream(rw, true)
	var progress progress
	image, err := w.cfg.Images.Pull(ctx, "", ref, func(i bourse.Image) {
		progress.tell(time.Now(), func() error { return out.write(i) })
	})
	progress.end()
	image.Pull = nil
	if err != nil && out.begun { // too late for a failure: the last line tells
		image.Ref, image.Pull = ref, &bourse.PullProgress{Status: "failed", Code: bourse.CodeOf(err), Error: bourse.MessageOf(err)}
		err = nil
	}
	if err == nil {
		err = out.write(image)
	}
	out.end(err)
}

func (w *Worker) mayPull(image string) error {
	config := bourse.Config{Image: image}
	switch {
	case w.cfg.Images == nil:
		return errNoContainers
	case !bourse.InRegistry(image):
		return bourse.Errorf(bourse.CodeInvalid, "image %s is in no registry", image)
	}
	return config.Normalize()
}

// progress passes some of many words on, and none after its end. What is told
// may come from any goroutine.
type progress struct {
	mu    sync.Mutex
	at    time.Time // guarded by mu; of the last word
	ended bool      // guarded by mu; also after an error: then nobody listens
}

func (p *progress) tell(now time.Time, say func() error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || now.Sub(p.at) < pullEvery {
		return
	}
	p.at = now
	p.ended = say() != nil
}

func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
}
