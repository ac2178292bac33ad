package worker

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/codec"
)

func handleImages(mux *http.ServeMux, w *Worker) {
	none := func(context.Context) ([]bourse.Image, error) { return []bourse.Image{}, nil }
	list, prune := none, none
	if w.cfg.Images != nil {
		list, prune = w.cfg.Images.List, w.cfg.Images.Prune
	}
	fabric.ImageList.Handle(mux, func(ctx context.Context, _ struct{}) ([]bourse.Image, error) { return list(ctx) })
	fabric.ImagePrune.Handle(mux, func(ctx context.Context, _ struct{}) ([]bourse.Image, error) { return prune(ctx) })
	fabric.ImagePull.Handle(mux, w.pullImage)
	fabric.ImageResolve.Handle(mux, func(ctx context.Context, req fabric.ResolveRequest) (bourse.ImageRef, error) {
		if err := w.mayPull(req.Image); err != nil {
			return bourse.ImageRef{}, err
		}
		return w.cfg.Images.Resolve(ctx, req.Org, req.Image)
	})
}

// pullEvery is the minimum time between two progress reports about a pull.
const pullEvery = 250 * time.Millisecond

// pullImage pulls an image and writes its progress as a stream of lines.
func (w *Worker) pullImage(ctx context.Context, req fabric.PullRequest, out *codec.Writer) error {
	if err := w.mayPull(req.Image); err != nil {
		return err
	}
	ref, err := w.cfg.Images.Resolve(ctx, "", req.Image)
	if err != nil {
		return err
	}
	var progress progress
	image, err := w.cfg.Images.Pull(ctx, "", ref, func(i bourse.Image) {
		progress.send(time.Now(), func() error { return out.Write(i) })
	})
	progress.end()
	image.Pull = nil
	if err != nil && !out.Begun() {
		return err
	}
	if err != nil { // the response has already begun, so send the error as its last line
		image.Ref, image.Pull = ref, &bourse.PullProgress{Status: "failed", Code: bourse.CodeOf(err), Error: bourse.MessageOf(err)}
	}
	return out.Write(image)
}

func (w *Worker) mayPull(image string) error {
	config := bourse.Config{Image: image}
	switch {
	case w.cfg.Images == nil:
		return bourse.Errorf(bourse.CodeUnavailable, "the worker was started without a container driver")
	case bourse.KindOfImage(image) != bourse.RegistryImage:
		return bourse.Errorf(bourse.CodeInvalid, "image %s does not come from a registry", image)
	}
	return config.Normalize()
}

// progress limits how often progress reports are sent. It does not send any reports after end is
// called. Its methods are safe for concurrent use.
type progress struct {
	mu    sync.Mutex
	at    time.Time // guarded by mu; time of the latest report
	ended bool      // guarded by mu; set by end, and by a report that could not be sent
}

func (p *progress) send(now time.Time, send func() error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || now.Sub(p.at) < pullEvery {
		return
	}
	p.at = now
	p.ended = send() != nil
}

func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
}
