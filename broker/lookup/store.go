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

// appMemory is how long a known app is assumed to exist without checking. For this long, an app that another broker
// has deleted can still receive machines.
const appMemory = time.Second

// maxApps limits the cache. A full cache is emptied.
const maxApps = 1 << 12

// searchInterval is the minimum interval between asking all workers for a name that is not in a synced view. It limits
// the load from callers that request missing apps.
const searchInterval = 50 * time.Millisecond

// Apps finds and changes apps. It merges records with bourse.App.Merge.
//
// If two brokers create an app with the same name at the same time, both may succeed. From then on, all readers agree
// on which of the two apps exists.
type Apps struct {
	Sources
	copies  func(ctx context.Context, worker bourse.Member) ([]bourse.App, error)
	lookups singleflight.Group // combines concurrent lookups of the same app

	mu     sync.Mutex
	recent map[bourse.AppName]seenApp
	looked time.Time // time when the workers were last asked for an app that is not in the view
}

type seenApp struct {
	app bourse.App
	at  time.Time
}

// NewApps returns a store of apps. copies returns a worker's verified copies of apps.
func NewApps(s Sources, copies func(ctx context.Context, worker bourse.Member) ([]bourse.App, error)) *Apps {
	return &Apps{Sources: s, copies: copies, recent: map[bourse.AppName]seenApp{}}
}

// appRecords contains records of apps by name, including tombstones.
type appRecords map[bourse.AppName]bourse.App

func (r appRecords) merge(apps ...bourse.App) {
	for _, app := range apps {
		if known, ok := r[app.Name]; ok {
			app = known.Merge(app)
		}
		r[app.Name] = app
	}
}

// one returns the view's record of an app.
func (s *Apps) one(ctx context.Context, name bourse.AppName) (appRecords, error) {
	out := appRecords{}
	app, err := s.View.App(ctx, name)
	if err == nil && app != nil {
		out.merge(*app)
	}
	return out, err
}

// all returns all of the view's records.
func (s *Apps) all(ctx context.Context) (appRecords, error) {
	out := appRecords{}
	apps, err := s.View.Apps(ctx)
	if err == nil {
		out.merge(apps...)
	}
	return out, err
}

// viewResult is the result of reading the view.
type viewResult struct {
	known  appRecords
	failed error // the view could not be read
	enough bool  // known answers the question if the view is reliable
	search bool  // ask the workers even if the view is in sync
}

// complete adds the workers' records to the view's if the latter are insufficient or unreliable. It also returns the
// workers that were required but did not answer. Errors: unavailable.
func (s *Apps) complete(ctx context.Context, l viewResult) (appRecords, []bourse.WorkerID, error) {
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
		return l.known, nil, nil // the second lookup was not strictly required, so missing answers do not matter
	}
	if err := NoneAnswered(answers); err != nil && !l.enough {
		return nil, nil, err
	}
	return l.known, Silent(answers), nil
}

// maySearch reports whether enough time has passed since the last second lookup.
func (s *Apps) maySearch() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	if now.Sub(s.looked) < searchInterval {
		return false
	}
	s.looked = now
	return true
}

// List returns the existing apps by name. It includes the default app if it was created or is used.
func (s *Apps) List(ctx context.Context, used Counts) ([]bourse.App, []bourse.WorkerID, error) {
	known, err := s.all(ctx)
	known, missing, err := s.complete(ctx, viewResult{known: known, failed: err, enough: len(known) > 0, search: len(known) == 0})
	if err != nil {
		return nil, nil, err
	}
	if app, ok := existing(known, bourse.DefaultAppName); ok && used.Of(&app) > 0 {
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

// Find returns an existing app. Errors: not_found, unavailable.
func (s *Apps) Find(ctx context.Context, name bourse.AppName) (bourse.App, error) {
	known, err := s.one(ctx, name)
	_, enough := existing(known, name)
	search := !enough && s.maySearch()
	known, missing, err := s.complete(ctx, viewResult{known: known, failed: err, enough: enough, search: search})
	if err != nil {
		return bourse.App{}, err
	}
	app, ok := existing(known, name)
	if _, deleted := known[name]; !ok && !deleted && len(missing) > 0 {
		return bourse.App{}, bourse.Errorf(bourse.CodeUnavailable, "app %s: %s, and no other worker knows it", name, DoNotAnswer(missing))
	}
	if !ok && !search && len(known) == 0 { // not known to be deleted; it was only not searched for again
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

// existing returns an app from records unless it is deleted.
func existing(known appRecords, name bourse.AppName) (bourse.App, bool) {
	app, ok := known[name]
	switch {
	case ok && app.DeletedAt == nil:
		return app, true
	case name == bourse.DefaultAppName:
		return bourse.DefaultApp(app), true
	}
	return bourse.App{}, false
}

// Recall returns an app that was found in the last second, or otherwise calls Find. Errors: not_found, unavailable.
func (s *Apps) Recall(ctx context.Context, name bourse.AppName) (bourse.App, error) {
	if app, ok := s.seen(name); ok {
		return app, nil
	}
	// The lookup is shared, so it must not be canceled with the caller that happened to start it. It has its own
	// deadline.
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
