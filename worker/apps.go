package worker

import (
	"context"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

const appsBatch = 256 // records in one transaction or update

// shareApps makes the worker's records of apps and the view's the same. The
// worker keeps them so that no app is lost with every view; it has no say in
// them, their merge has.
func (l *listener) shareApps(ctx context.Context) error {
	heard, err := l.view.Apps(ctx)
	if err != nil {
		return err
	}
	kept, err := l.w.apps("")
	if err != nil {
		return err
	}
	keep, tell := reconcile(kept, heard)
	for batch := range slices.Chunk(keep, appsBatch) {
		for i := range batch {
			if batch[i], err = l.view.Prove(ctx, batch[i].Name); err != nil {
				return err
			}
		}
		if err := l.w.store.Update(ctx, func(tx *store.Tx) error { return mergeApps(tx, batch) }); err != nil {
			return err
		}
	}
	for batch := range slices.Chunk(tell, appsBatch) {
		if err := offer(ctx, l.w.log, l.view, Update{Apps: batch}); err != nil {
			return err
		}
	}
	return nil
}

// reconcile tells which of the records that were heard of those that are kept
// lack, and which of the kept those that were heard. A record with a name that
// no app may have is nobody's.
func reconcile(kept, heard []bourse.App) (keep, tell []bourse.App) {
	have := make(map[bourse.AppName]*bourse.App, len(kept))
	for i := range kept {
		have[kept[i].Name] = &kept[i]
	}
	for _, theirs := range heard {
		ours := have[theirs.Name]
		delete(have, theirs.Name)
		switch {
		case ours == nil:
			if theirs.Name.Validate() == nil {
				keep = append(keep, theirs)
			}
		case sameApp(*ours, theirs):
			if len(ours.Proof) == 0 { // it came with a claim
				keep = append(keep, theirs)
			}
		case sameApp(*ours, ours.Merge(theirs)):
			tell = append(tell, *ours)
		default:
			keep = append(keep, theirs)
		}
	}
	for i := range kept {
		if _, unheard := have[kept[i].Name]; unheard {
			tell = append(tell, kept[i])
		}
	}
	tell = slices.DeleteFunc(tell, func(app bourse.App) bool { return len(app.Proof) == 0 }) // nobody would believe us
	return keep, tell
}

// sameApp tells whether two records of a name are one to bourse.App.Merge.
func sameApp(a, b bourse.App) bool {
	if a.Life != b.Life || a.ID != b.ID || !a.CreatedAt.Equal(b.CreatedAt) || (a.DeletedAt == nil) != (b.DeletedAt == nil) {
		return false
	}
	return a.DeletedAt == nil || a.DeletedAt.Equal(*b.DeletedAt)
}

// mergeApps merges records into the worker's own.
func mergeApps(tx *store.Tx, apps []bourse.App) error {
	for _, app := range apps {
		old, ok, err := tx.App(app.Name)
		if err != nil {
			return err
		}
		if ok {
			proven := len(app.Proof) > 0 && len(old.Proof) == 0
			if merged := old.Merge(app); !sameApp(merged, app) || sameApp(merged, old) && !proven {
				continue
			}
		}
		if err := tx.PutApp(app); err != nil {
			return err
		}
	}
	return nil
}

// apps lists the records of apps, or that of one name, tombstones included.
func (w *Worker) apps(name bourse.AppName) ([]bourse.App, error) {
	apps := []bourse.App{}
	err := w.store.View(func(tx *store.Tx) error {
		if name != "" {
			app, ok, err := tx.App(name)
			if ok {
				apps = append(apps, app)
			}
			return err
		}
		for app, err := range tx.Apps() {
			if err != nil {
				return err
			}
			apps = append(apps, app)
		}
		return nil
	})
	return apps, err
}
