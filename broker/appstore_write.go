package broker

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// newApp is what a caller says of an app to be made.
type newApp struct {
	name    bourse.AppName // may be empty with a key that was used before
	org     string
	network string
	key     string // makes a repetition find the first app
}

// create makes an app. Codes: invalid, already_exists, unavailable (nothing
// happened), timeout (nobody confirmed it).
func (s *appStore) create(ctx context.Context, want newApp) (bourse.App, error) {
	all, err := s.all(ctx)
	all, _, err = s.complete(ctx, look{known: all, failed: err, search: s.maySearch()})
	if err != nil {
		return bourse.App{}, err
	}
	id := bourse.NewAppID()
	if want.key != "" {
		id = bourse.IDOf("idempotency key", want.org, want.key)
		if first, ok := byID(all, id); ok {
			return again(first, want.name)
		}
	}
	if want.name == "" {
		return bourse.App{}, bourse.Errorf(bourse.CodeInvalid, "an app needs a name")
	}
	if _, ok := living(all, want.name); ok {
		return bourse.App{}, errNameTaken()
	}
	// Stamped as late as possible: of two makers the earlier one wins.
	app := bourse.App{Name: want.name, ID: id, Org: want.org, Network: want.network, CreatedAt: s.Now().UTC()}
	if old, ok := all[want.name]; ok {
		app.Life = old.Life + 1 // old is a tombstone: its name begins another life
	}
	merged, err := s.View.PutApp(ctx, app)
	if err != nil {
		return bourse.App{}, err
	}
	if merged.ID != id || merged.DeletedAt != nil {
		return bourse.App{}, errNameTaken() // another broker was quicker
	}
	s.remember(merged)
	return merged, nil
}

func byID(all appRecords, id string) (bourse.App, bool) {
	for _, app := range all {
		if app.ID == id {
			return app, true
		}
	}
	return bourse.App{}, false
}

// again answers a repetition with the app that the key made.
func again(first bourse.App, name bourse.AppName) (bourse.App, error) {
	switch {
	case name != "" && name != first.Name:
		return first, &reply{status: http.StatusUnprocessableEntity, err: bourse.Errorf(bourse.CodeInvalid,
			"the idempotency key was used for another app, %s", first.Name)}
	case first.DeletedAt != nil:
		return first, &reply{status: http.StatusUnprocessableEntity, err: bourse.Errorf(bourse.CodeInvalid,
			"the idempotency key's app %s was deleted: use a new key", first.Name)}
	}
	return first, nil
}

// errNameTaken has the text and the word that clients look for.
func errNameTaken() error {
	return &reply{
		status: http.StatusUnprocessableEntity, word: machinesapi.StatusNameTaken,
		err: bourse.Errorf(bourse.CodeAlreadyExists, "Validation failed: Name has already been taken"),
	}
}

// delete makes the app's record a tombstone. Codes: unavailable, timeout.
func (s *appStore) delete(ctx context.Context, app bourse.App) error {
	now := s.Now().UTC()
	app.DeletedAt = &now
	s.forget(app.Name)
	_, err := s.View.PutApp(ctx, app)
	s.forget(app.Name) // whoever asked in between saw the past
	return err
}
