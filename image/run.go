package image

import (
	"context"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"

	"github.com/bourse-dev/bourse"
)

// Intervals of Run's periodic work.
const (
	flushEvery    = 10 * time.Second
	sweepEvery    = time.Minute
	retryEvery    = 500 * time.Millisecond
	answerTimeout = 5 * time.Second // how long to wait until containerd answers, including retries
)

// Run synchronizes the store with containerd until ctx is done, and then closes the store. It reads the images, resumes
// interrupted pulls, evicts images that exceed the budget, and notices images that other programs remove. If containerd
// becomes unavailable, Run starts over when containerd is available again.
func (s *Store) Run(ctx context.Context) error {
	away := false
	for ctx.Err() == nil {
		err := s.session(ctx, func() {
			if away {
				s.config.Log.Info("containerd is available again")
			}
			away = false
		})
		if ctx.Err() == nil && !away {
			s.config.Log.Warn("containerd is unavailable", "err", err)
			away = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryEvery):
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if ctx, c, err := s.containerd(last); err == nil && !away {
		s.flush(ctx, c)
	}
	return s.Close()
}

// session does Run's work until containerd becomes unavailable or ctx is done. It calls ready once it has read the
// images from containerd.
func (s *Store) session(ctx context.Context, ready func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ctx, c, err := s.containerd(ctx)
	if err != nil {
		return err
	}
	if err := awaitServing(ctx, c); err != nil {
		return err
	}
	events, lost := c.EventService().Subscribe(ctx, `namespace==`+s.config.Namespace+`,topic~="^/images/"`)
	if err := s.load(ctx, c); err != nil {
		return err
	}
	ready()
	if err := s.resume(ctx, c); err != nil {
		return err
	}
	s.trim(ctx, c)
	flush, sweep := time.NewTicker(flushEvery), time.NewTicker(sweepEvery)
	defer flush.Stop()
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-lost:
			return err
		case <-events:
			err = s.load(ctx, c)
		case <-flush.C:
			s.flush(ctx, c)
		case <-sweep.C:
			s.sweep(ctx, c)
			err = s.load(ctx, c) // events may have been lost
			s.trim(ctx, c)
		}
		if err != nil {
			return err
		}
	}
}

// awaitServing waits until containerd answers. It returns an error if this takes longer than answerTimeout.
func awaitServing(ctx context.Context, c *containerd.Client) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	ok, err := c.IsServing(ctx)
	if err == nil && !ok {
		err = errdefs.ErrUnavailable
	}
	return err
}

// resume starts every pull that has a lease but is not in progress. If the image is already present, it removes the
// lease instead.
func (s *Store) resume(ctx context.Context, c *containerd.Client) error {
	all, err := activePulls(ctx, c)
	if err != nil {
		return err
	}
	for _, u := range all {
		ref, name := u.ref, recordName(u.ref)
		s.mu.Lock()
		_, here := s.memory.catalog.records[name]
		_, going := s.memory.pulls[name]
		if !here && !going && !s.memory.closed {
			s.config.Log.Info("pull resumed", "image", ref.String())
			s.endAfterLinger(s.start(ctx, u.org, ref))
		}
		s.mu.Unlock()
		if !here {
			continue
		}
		// An earlier daemon stopped after it had created the record but before it removed the lease.
		if err := dropLease(ctx, c, ref, true); err != nil {
			return err
		}
	}
	return nil
}

// trim evicts images if they exceed the budget.
func (s *Store) trim(ctx context.Context, c *containerd.Client) {
	if err := s.makeRoom(ctx, c, nil); err != nil && ctx.Err() == nil {
		s.config.Log.Warn("evict images failed", "err", err)
	}
}

// sweep removes the data of failed pulls if it is older than Config.Keep.
func (s *Store) sweep(ctx context.Context, c *containerd.Client) {
	s.mu.Lock()
	var old []bourse.ImageRef
	for _, k := range s.memory.leftovers {
		if time.Since(k.failed) >= s.config.Keep {
			old = append(old, k.ref)
		}
	}
	s.mu.Unlock()
	for _, ref := range old {
		if err := s.dropKept(ctx, c, ref); err != nil {
			s.config.Log.Warn("remove leftover pull data failed", "image", ref.String(), "err", err)
		}
	}
}

// flush stores changed labels in containerd: tags, times of the last use, and tenants.
func (s *Store) flush(ctx context.Context, c *containerd.Client) {
	s.mu.Lock()
	labels := map[string]map[string]string{}
	for name, r := range s.memory.catalog.records {
		if r.dirty {
			r.access = s.memory.catalog.tenants(name)
			labels[name] = r.labels()
			r.dirty = false
		}
	}
	s.mu.Unlock()
	for name, l := range labels {
		_, err := c.ImageService().Update(ctx, images.Image{Name: name, Labels: l}, "labels."+labelTags, "labels."+labelUsed, "labels."+labelAccess)
		if err == nil || errdefs.IsNotFound(err) {
			continue
		}
		s.mu.Lock()
		if r, ok := s.memory.catalog.records[name]; ok {
			r.dirty = true
		}
		s.mu.Unlock()
		s.config.Log.Warn("record image use failed", "image", name, "err", err)
	}
}
