package broker

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/lookup"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/codec"
	"github.com/bourse-dev/bourse/machinesapi"
)

// pullConcurrency limits how many workers are asked to pull at the same time.
const pullConcurrency = 256

// imageHandler serves the image endpoints.
type imageHandler struct {
	*Config
	apps *lookup.Apps
}

func (h *imageHandler) routes() []endpoint.Route {
	return []endpoint.Route{
		endpoint.On("GET /v1/images", endpoint.Cluster, h.listImages).Writes(machinesapi.ImageList{}).Asks("region", "worker"),
		endpoint.On("POST /v1/images/pull", endpoint.Cluster, h.pullImage).Reads(machinesapi.PullImage{}).Streams(machinesapi.PullLine{}),
		endpoint.On("POST /v1/images/prune", endpoint.Cluster, h.pruneImages).MayRead(machinesapi.ImageTarget{}).Writes(machinesapi.ImageList{}),
		endpoint.On("GET "+endpoint.OneApp+"/images/resolve", endpoint.App, h.resolveImage).Writes(bourse.ImageRef{}).Asks("image"),
	}
}

// targets returns the workers that a request selects. Errors: invalid; not_found if the worker does
// not exist or the region has no workers.
func (h *imageHandler) targets(t machinesapi.ImageTarget) ([]bourse.Member, error) {
	if t.Region != "" && t.Worker != "" {
		return nil, bourse.Errorf(bourse.CodeInvalid, "region and worker are mutually exclusive")
	}
	members := h.Directory.Workers()
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
		return nil, bourse.Errorf(bourse.CodeNotFound, "region %s has no workers", bourse.Quoted(string(t.Region)))
	}
	return nil, bourse.Errorf(bourse.CodeUnavailable, "no workers are known")
}

func (h *imageHandler) listImages(w http.ResponseWriter, r *endpoint.Request) error {
	query := r.URL.Query()
	members, err := h.targets(machinesapi.ImageTarget{Region: bourse.Region(query.Get("region")), Worker: bourse.WorkerID(query.Get("worker"))})
	if err != nil {
		return err
	}
	return writeImages(w, lookup.Ask(r.Context(), h.Timeout, members, lookup.Asking(h.Workers, &fabric.ImageList, struct{}{})))
}

// pruneImages waits until the workers have removed their unused images. The workers continue even if the caller
// disconnects.
func (h *imageHandler) pruneImages(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.ImageTarget
	if err := endpoint.Decode(w, r, true, &in); err != nil {
		return err
	}
	members, err := h.targets(in)
	if err != nil {
		return err
	}
	return writeImages(w, lookup.Ask(r.Context(), verbTimeout, members, lookup.Asking(h.Workers, &fabric.ImagePrune, struct{}{})))
}

func writeImages(w http.ResponseWriter, answers []lookup.Answer[[]bourse.Image]) error {
	if err := lookup.NoneAnswered(answers); err != nil {
		return err
	}
	out := machinesapi.ImageList{Images: []machinesapi.WorkerImage{}}
	for _, a := range answers {
		for _, i := range a.Got {
			out.Images = append(out.Images, machinesapi.WorkerImage{Worker: a.From.ID, Region: a.From.Region, Image: i})
		}
	}
	endpoint.ListUnreachable(w.Header(), lookup.Unresponsive(answers))
	return endpoint.WriteJSON(w, http.StatusOK, out)
}

// pullImage pulls an image on several workers in parallel. It streams their progress, one JSON value per line, until
// all workers have finished. If the caller disconnects, the pulls continue.
func (h *imageHandler) pullImage(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.PullImage
	if err := endpoint.Decode(w, r, false, &in); err != nil {
		return err
	}
	if bourse.KindOfImage(in.Image) != bourse.RegistryImage || !isImageName(in.Image) {
		return errImageName(in.Image)
	}
	members, err := h.targets(in.ImageTarget)
	if err != nil {
		return err
	}
	out := codec.NewWriter(w)
	out.Begin()
	var mu sync.Mutex // guards out
	report := func(line machinesapi.PullLine) error {
		mu.Lock()
		defer mu.Unlock()
		return out.Write(line)
	}
	var group errgroup.Group
	group.SetLimit(pullConcurrency)
	for _, m := range members {
		group.Go(func() error { return h.pullOn(r, m, in.Image, report) })
	}
	_ = group.Wait() // an error means that the caller has disconnected
	return nil
}

func isImageName(s string) bool {
	return s != "" && len(s) <= 512 && !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c == 0x7f })
}

func errImageName(s string) error {
	return bourse.Errorf(bourse.CodeInvalid, "invalid image %s: use a name such as nginx:1.27", bourse.Quoted(s))
}

// Limits for resolving an image. Workers are asked one after another until one of them can reach
// the registry.
const (
	resolveWorkers = 16
	resolveTimeout = 10 * time.Second
)

// resolveImage returns the image that a name currently refers to. A broker has no registry client, so it asks workers
// that can run images; they query the registry with the credentials of the app's organization.
func (h *imageHandler) resolveImage(w http.ResponseWriter, r *endpoint.Request) error {
	name := machinesapi.ImageName(r.URL.Query().Get("image"))
	if !isImageName(name) {
		return errImageName(name)
	}
	app, err := h.apps.FindCached(r.Context(), r.App())
	if err != nil {
		return err
	}
	if bourse.KindOfImage(name) != bourse.RegistryImage {
		return endpoint.WriteJSON(w, http.StatusOK, bourse.ParseImageRef(name))
	}
	ctx, cancel := context.WithTimeout(r.Context(), resolveTimeout)
	defer cancel()
	members := h.Directory.Workers()
	rand.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	err = bourse.Errorf(bourse.CodeUnavailable, "no worker that can run images is known")
	for _, m := range members[:min(len(members), resolveWorkers)] {
		var ref bourse.ImageRef
		ref, err = fabric.ImageResolve.Call(ctx, h.Workers, m, fabric.ResolveRequest{Image: name, Org: app.Org})
		if err == nil {
			return endpoint.WriteJSON(w, http.StatusOK, ref)
		}
		if code := bourse.CodeOf(err); code == bourse.CodeNotFound || code == bourse.CodeInvalid {
			return err // another worker would return the same error
		}
		err = endpoint.WorkerError(r.Context(), m.ID, endpoint.Reading, err)
	}
	return err
}

// pullOn asks one worker to pull an image, and calls report with the progress and the result. It returns an error
// only if report fails or the caller has disconnected.
func (h *imageHandler) pullOn(r *endpoint.Request, m bourse.Member, image string, report func(machinesapi.PullLine) error) error {
	line := machinesapi.PullLine{Worker: m.ID, Region: m.Region}
	got, err := pull(r.Context(), h.Workers, m, image, func(i bourse.Image) error {
		now := line
		now.Image = &i
		return report(now)
	})
	if r.Context().Err() != nil {
		return r.Context().Err()
	}
	if err != nil {
		code := bourse.CodeOf(err)
		if code != bourse.CodeNotFound { // here, not_found refers to the image, not to the worker
			err = endpoint.WorkerError(r.Context(), m.ID, endpoint.Reading, err)
			code = bourse.CodeOf(err)
		}
		line.Error = &machinesapi.ErrorBody{Error: bourse.MessageOf(err), Status: machinesapi.StatusUnknown, Code: code, RequestID: r.ID}
		return report(line)
	}
	line.Image, line.Done = &got, true
	return report(line)
}

// pull asks a worker to pull an image, and calls progress with each report. It returns the image once the worker has
// it. If progress returns an error, pull returns that error, but the worker continues to pull.
func pull(ctx context.Context, f fabric.Fabric, m bourse.Member, image string, progress func(bourse.Image) error) (last bourse.Image, err error) {
	there := false
	err = fabric.ImagePull.Call(ctx, f, m, fabric.PullRequest{Image: image}, func(i bourse.Image) error {
		if i.Pull != nil && i.Pull.Status == "failed" {
			return &bourse.Error{Code: i.Pull.Code, Message: i.Pull.Error}
		}
		if last, there = i, i.Pull == nil; there {
			return nil
		}
		return progress(i)
	})
	if err == nil && !there {
		err = bourse.Errorf(bourse.CodeInternal, "worker %s finished a pull but returned no image", m.ID)
	}
	return last, err
}
