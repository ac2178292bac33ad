package publish

import (
	"context"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

const appsBatch = 256 // number of records in one transaction or update

// shareApps merges the app records in the worker's store with those in the view, so that both contain all apps. The
// worker stores apps so that they survive even if all views are lost.
func (l *Listener) shareApps(ctx context.Context) error {
	listed, err := l.view.Apps(ctx)
	if err != nil {
		return err
	}
	kept, err := l.state.Apps("")
	if err != nil {
		return err
	}
	keep, publish := reconcile(kept, listed)
	for batch := range slices.Chunk(keep, appsBatch) {
		for i := range batch {
			if batch[i], err = l.view.Proof(ctx, batch[i].Name); err != nil {
				return err
			}
		}
		if err := l.state.Store.Update(ctx, func(tx *store.Tx) error { return mergeApps(tx, batch) }); err != nil {
			return err
		}
	}
	for batch := range slices.Chunk(publish, appsBatch) {
		if err := publishAccepted(ctx, l.state.Log, l.view, Update{Apps: batch}); err != nil {
			return err
		}
	}
	return nil
}

// reconcile compares the worker's records of apps (kept) with the view's (listed). It returns the records in listed
// that the worker must store, and the records in kept that it must publish. It ignores records with invalid names.
func reconcile(kept, listed []bourse.App) (keep, publish []bourse.App) {
	have := make(map[bourse.AppName]*bourse.App, len(kept))
	for i := range kept {
		have[kept[i].Name] = &kept[i]
	}
	for _, theirs := range listed {
		ours := have[theirs.Name]
		delete(have, theirs.Name)
		switch {
		case ours == nil:
			if theirs.Name.Validate() == nil {
				keep = append(keep, theirs)
			}
		case sameApp(*ours, theirs):
			if len(ours.Proof) == 0 { // the record arrived with a claim and had no proof
				keep = append(keep, theirs)
			}
		case sameApp(*ours, ours.Merge(theirs)):
			publish = append(publish, *ours)
		default:
			keep = append(keep, theirs)
		}
	}
	for i := range kept {
		if _, unlisted := have[kept[i].Name]; unlisted {
			publish = append(publish, kept[i])
		}
	}
	publish = slices.DeleteFunc(publish, func(app bourse.App) bool { return len(app.Proof) == 0 }) // the view does not accept apps without a proof
	return keep, publish
}

// sameApp reports whether two records with the same name are equal as far as bourse.App.Merge is concerned.
func sameApp(a, b bourse.App) bool {
	if a.Generation != b.Generation || a.ID != b.ID || !a.CreatedAt.Equal(b.CreatedAt) || (a.DeletedAt == nil) != (b.DeletedAt == nil) {
		return false
	}
	return a.DeletedAt == nil || a.DeletedAt.Equal(*b.DeletedAt)
}

// mergeApps merges records into the worker's store.
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
