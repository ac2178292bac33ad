package broker

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// ImageKeeper is what a broker asks of workers about their images.
type ImageKeeper interface {
	// Images lists the images that the worker has or is pulling.
	Images(ctx context.Context, to bourse.Member) ([]bourse.Image, error)
	// ImagePull has the worker pull an image and tells progress as it comes.
	// It answers once the image is there.
	ImagePull(ctx context.Context, to bourse.Member, image string, progress func(bourse.Image) error) (bourse.Image, error)
	// ImagePrune removes the images that no machine uses, and gives them.
	ImagePrune(ctx context.Context, to bourse.Member) ([]bourse.Image, error)
}

// pullAtOnce bounds how many workers are watched pulling at once.
const pullAtOnce = 256

// targets finds the workers that are meant. Codes: invalid, not_found (the
// worker, or a region without any).
func (b *Broker) targets(t machinesapi.ImageTarget) ([]bourse.Member, error) {
	if t.Region != "" && t.Worker != "" {
		return nil, bourse.Errorf(bourse.CodeInvalid, "region and worker exclude each other")
	}
	members := b.Directory.Workers()
	members = slices.DeleteFunc(members, func(m bourse.Member) bool {
		return t.Worker != "" && m.ID != t.Worker || t.Region != "" && m.Region != t.Region
	})
	slices.SortFunc(members, func(x, y bourse.Member) int { return cmp.Or(cmp.Compare(x.Region, y.Region), cmp.Compare(x.ID, y.ID)) })
	switch {
	case len(members) > 0:
		return members, nil
	case t.Worker != "":
		return nil, bourse.Errorf(bourse.CodeNotFound, "worker %s not found", bourse.Quoted(string(t.Worker)))
	case t.Region != "":
		return nil, bourse.Errorf(bourse.CodeNotFound, "no worker stands in region %s", bourse.Quoted(string(t.Region)))
	}
	return nil, bourse.Errorf(bourse.CodeUnavailable, "no worker has been heard of")
}

func (b *Broker) listImages(w http.ResponseWriter, r *request) error {
	query := r.URL.Query()
	members, err := b.targets(machinesapi.ImageTarget{Region: bourse.Region(query.Get("region")), Worker: bourse.WorkerID(query.Get("worker"))})
	if err != nil {
		return err
	}
	return writeImages(w, ask(r.Context(), b.Patience, members, b.Workers.Images))
}

// pruneImages waits for the workers that remove something, which they go on
// with when nobody waits.
func (b *Broker) pruneImages(w http.ResponseWriter, r *request) error {
	var in machinesapi.ImageTarget
	if err := decode(w, r, true, &in); err != nil {
		return err
	}
	members, err := b.targets(in)
	if err != nil {
		return err
	}
	return writeImages(w, ask(r.Context(), verbPatience, members, b.Workers.ImagePrune))
}

func writeImages(w http.ResponseWriter, answers []answer[[]bourse.Image]) error {
	if err := noneAnswered(answers); err != nil {
		return err
	}
	out := machinesapi.ImageList{Images: []machinesapi.WorkerImage{}}
	for _, a := range answers {
		for _, i := range a.got {
			out.Images = append(out.Images, machinesapi.WorkerImage{Worker: a.from.ID, Region: a.from.Region, Image: i})
		}
	}
	showSilent(w.Header(), silent(answers))
	return writeJSON(w, http.StatusOK, out)
}

// pullImage has workers pull an image side by side and streams their progress,
// a JSON value a line, until each has ended. A caller that leaves ends the
// stream and no pull.
func (b *Broker) pullImage(w http.ResponseWriter, r *request) error {
	var in machinesapi.PullImage
	if err := decode(w, r, false, &in); err != nil {
		return err
	}
	if in.Image == "" || !bourse.InRegistry(in.Image) || len(in.Image) > 512 || strings.ContainsFunc(in.Image, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
		return bourse.Errorf(bourse.CodeInvalid, "invalid image %s: use a name such as nginx:1.27", bourse.Quoted(in.Image))
	}
	members, err := b.targets(in.ImageTarget)
	if err != nil {
		return err
	}
	out := &lineWriter{w: w, flush: http.NewResponseController(w).Flush}
	out.begin()
	var mu sync.Mutex // around out
	tell := func(line machinesapi.PullLine) error {
		mu.Lock()
		defer mu.Unlock()
		return out.write(line)
	}
	var group errgroup.Group
	group.SetLimit(pullAtOnce)
	for _, m := range members {
		group.Go(func() error { return b.pullOn(r, m, in.Image, tell) })
	}
	_ = group.Wait() // the caller has left: nobody to tell
	return nil
}

// pullOn has one worker pull an image. Its error is that of tell.
func (b *Broker) pullOn(r *request, m bourse.Member, image string, tell func(machinesapi.PullLine) error) error {
	line := machinesapi.PullLine{Worker: m.ID, Region: m.Region}
	got, err := b.Workers.ImagePull(r.Context(), m, image, func(i bourse.Image) error {
		now := line
		now.Image = &i
		return tell(now)
	})
	if r.Context().Err() != nil {
		return r.Context().Err()
	}
	if err != nil {
		code := bourse.CodeOf(err)
		if code != bourse.CodeNotFound { // which is about the image
			err = workerError(r.Context(), m.ID, reading, err)
			code = bourse.CodeOf(err)
		}
		line.Error = &machinesapi.ErrorBody{Error: bourse.MessageOf(err), Status: machinesapi.StatusUnknown, Code: code, RequestID: r.id}
		return tell(line)
	}
	line.Image, line.Done = &got, true
	return tell(line)
}
