package lookup

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/bourse-dev/bourse"
)

// appMemory is how long an app that was seen is taken to be there without
// looking. So long may an app that another broker deleted still get a machine.
const appMemory = time.Second

// maxApps bounds how many are remembered; past it the memory starts again.
const maxApps = 1 << 12

// secondLooks is the least time between two questions to all workers for a
// name that a synced view does not have. A caller that asks for names that do not exist
// must not keep the whole cluster busy.
const secondLooks = 50 * time.Millisecond

// Apps finds and changes apps. Records are merged by bourse.App.Merge.
//
// Two brokers that make one name before they have heard of each other may both
// succeed; every reader agrees from then on which of the two apps it is.
type Apps struct {
	Sources
	copies  func(ctx context.Context, worker bourse.Member) ([]bourse.App, error)
	lookups singleflight.Group // one look for all requests that miss at once

	mu     sync.Mutex
	recent map[bourse.AppName]seenApp
	looked time.Time // when the workers were last asked for what the view does not have
}

type seenApp struct {
	app bourse.App
	at  time.Time
}

// NewApps returns a store of apps. copies returns a worker's verified copies of apps.
func NewApps(s Sources, copies func(ctx context.Context, worker bourse.Member) ([]bourse.App, error)) *Apps {
	return &Apps{Sources: s, copies: copies, recent: map[bourse.AppName]seenApp{}}
}

// appRecords is what is known of names, tombstones included.
type appRecords map[bourse.AppName]bourse.App

func (r appRecords) merge(apps ...bourse.App) {
	for _, app := range apps {
		if known, ok := r[app.Name]; ok {
			app = known.Merge(app)
		}
		r[app.Name] = app
	}
}

// one returns what the view has of a name.
func (s *Apps) one(ctx context.Context, name bourse.AppName) (appRecords, error) {
	out := appRecords{}
	app, err := s.View.App(ctx, name)
	if err == nil && app != nil {
		out.merge(*app)
	}
	return out, err
}

// all returns what the view has.
func (s *Apps) all(ctx context.Context) (appRecords, error) {
	out := appRecords{}
	apps, err := s.View.Apps(ctx)
	if err == nil {
		out.merge(apps...)
	}
	return out, err
}

// look is what the view said to a question.
type look struct {
	known  appRecords
	failed error // the view could not be read
	enough bool  // known answers the question, as far as the view can be relied on
	search bool  // ask the workers what a synced view does not have
}

// complete adds what the workers know to what the view has, where that is not
// enough or cannot be relied on. It returns the workers that were needed and did
// not answer, too. Codes: unavailable.
func (s *Apps) complete(ctx context.Context, l look) (appRecords, []bourse.WorkerID, error) {
	if l.failed != nil {
		s.Log.WarnContext(ctx, "read view failed", slog.Any("err", l.failed))
	}
	synced := l.failed == nil && s.View.InSync()
	if synced && !l.search {
		return l.known, nil, nil
	}
	answers := Ask(ctx, s.Patience, s.Directory.Workers(), s.copies)
	for _, a := range answers {
		if a.Err == nil {
			l.known.merge(a.Got...)
		}
	}
	if synced {
		return l.known, nil, nil // the second look was more than was needed
	}
	if err := NoneAnswered(answers); err != nil && !l.enough {
		return nil, nil, err
	}
	return l.known, Silent(answers), nil
}

// maySearch reports whether it is time for another second look.
func (s *Apps) maySearch() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	if now.Sub(s.looked) < secondLooks {
		return false
	}
	s.looked = now
	return true
}

// List returns the living apps by name, the default one if it was made, or is
// used.
func (s *Apps) List(ctx context.Context, used Counts) ([]bourse.App, []bourse.WorkerID, error) {
	known, err := s.all(ctx)
	known, missing, err := s.complete(ctx, look{known: known, failed: err, enough: len(known) > 0, search: len(known) == 0})
	if err != nil {
		return nil, nil, err
	}
	if app, ok := living(known, bourse.DefaultAppName); ok && used.Of(&app) > 0 {
		known[bourse.DefaultAppName] = app
	}
	var out []bourse.App
	for _, app := range known {
		if app.DeletedAt == nil {
			out = append(out, app)
		}
	}
	slices.SortFunc(out, func(a, b bourse.App) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return out, missing, nil
}

// Find looks for a living app. Codes: not_found, unavailable.
func (s *Apps) Find(ctx context.Context, name bourse.AppName) (bourse.App, error) {
	known, err := s.one(ctx, name)
	_, enough := living(known, name)
	search := !enough && s.maySearch()
	known, missing, err := s.complete(ctx, look{known: known, failed: err, enough: enough, search: search})
	if err != nil {
		return bourse.App{}, err
	}
	app, ok := living(known, name)
	if _, deleted := known[name]; !ok && !deleted && len(missing) > 0 {
		return bourse.App{}, bourse.Errorf(bourse.CodeUnavailable, "app %s: %s, and no one else knows it", name, DoNotAnswer(missing))
	}
	if !ok && !search && len(known) == 0 { // it is not known to be gone, only not looked for again
		if seen, ok := s.seen(name); ok {
			return seen, nil
		}
	}
	if !ok {
		s.forget(name)
		return bourse.App{}, ErrNoApp
	}
	s.remember(app)
	return app, nil
}

// living finds an app that is not deleted among records.
func living(known appRecords, name bourse.AppName) (bourse.App, bool) {
	app, ok := known[name]
	switch {
	case ok && app.DeletedAt == nil:
		return app, true
	case name == bourse.DefaultAppName:
		return bourse.DefaultApp(app), true
	}
	return bourse.App{}, false
}

// Recall returns an app seen in the last second, and finds it otherwise. Codes:
// not_found, unavailable.
func (s *Apps) Recall(ctx context.Context, name bourse.AppName) (bourse.App, error) {
	if app, ok := s.seen(name); ok {
		return app, nil
	}
	// The look is shared, so it must not end with the caller who happened to
	// begin it; it has its own deadline.
	shared := context.WithoutCancel(ctx)
	found, err, _ := s.lookups.Do(string(name), func() (any, error) {
		ctx, cancel := context.WithTimeout(shared, s.Patience)
		defer cancel()
		return s.Find(ctx, name)
	})
	app, _ := found.(bourse.App)
	return app, err
}

// seen returns an app that was found in the last second.
func (s *Apps) seen(name bourse.AppName) (bourse.App, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, ok := s.recent[name]
	return seen.app, ok && s.Now().Sub(seen.at) < appMemory
}

func (s *Apps) remember(app bourse.App) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.recent) >= maxApps {
		clear(s.recent)
	}
	s.recent[app.Name] = seenApp{app, s.Now()}
}

func (s *Apps) forget(name bourse.AppName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.recent, name)
}
