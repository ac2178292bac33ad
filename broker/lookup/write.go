package lookup

import (
	"context"
	"errors"

	"github.com/bourse-dev/bourse"
)

// NewApp is what a caller says of an app to be made.
type NewApp struct {
	Name    bourse.AppName // may be empty with a key that was used before
	Org     string
	Network string
	Key     string // makes a repetition find the first app
}

// Create makes an app. Codes: invalid, already_exists, unavailable (nothing
// happened), timeout (no one confirmed it).
func (s *Apps) Create(ctx context.Context, want NewApp) (bourse.App, error) {
	all, err := s.all(ctx)
	all, _, err = s.complete(ctx, look{known: all, failed: err, search: s.maySearch()})
	if err != nil {
		return bourse.App{}, err
	}
	id := bourse.NewAppID()
	if want.Key != "" {
		id = bourse.IDOf("idempotency key", want.Org, want.Key)
		if first, ok := byID(all, id); ok {
			return again(first, want.Name)
		}
	}
	if want.Name == "" {
		return bourse.App{}, bourse.Errorf(bourse.CodeInvalid, "an app needs a name")
	}
	if _, ok := living(all, want.Name); ok {
		return bourse.App{}, ErrNameTaken
	}
	// Stamped as late as possible: of two makers the earlier one wins.
	app := bourse.App{Name: want.Name, ID: id, Org: want.Org, Network: want.Network, CreatedAt: s.Now().UTC()}
	if old, ok := all[want.Name]; ok {
		app.Life = old.Life + 1 // old is a tombstone: its name begins another life
	}
	merged, err := s.View.PutApp(ctx, app)
	if err != nil {
		return bourse.App{}, err
	}
	if merged.ID != id || merged.DeletedAt != nil {
		return bourse.App{}, ErrNameTaken // another broker was quicker
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

// Errors that clients tell from others of their codes.
var (
	// ErrNoApp has the exact text that clients compare.
	ErrNoApp = bourse.Errorf(bourse.CodeNotFound, "app not found")
	// ErrNameTaken has the text that clients look for.
	ErrNameTaken = bourse.Errorf(bourse.CodeAlreadyExists, "Validation failed: Name has already been taken")
	// ErrKeyUsed is below an error of an idempotency key that made another app.
	ErrKeyUsed = errors.New("the key was used")
)

// again answers a repetition with the app that the key made.
func again(first bourse.App, name bourse.AppName) (bourse.App, error) {
	text := ""
	switch {
	case name != "" && name != first.Name:
		text = "the idempotency key was used for another app, " + string(first.Name)
	case first.DeletedAt != nil:
		text = "the idempotency key's app " + string(first.Name) + " was deleted: use a new key"
	default:
		return first, nil
	}
	return first, &bourse.Error{Code: bourse.CodeInvalid, Message: text, Err: ErrKeyUsed}
}

// Delete makes the app's record a tombstone. Codes: unavailable, timeout.
func (s *Apps) Delete(ctx context.Context, app bourse.App) error {
	now := s.Now().UTC()
	app.DeletedAt = &now
	s.forget(app.Name)
	_, err := s.View.PutApp(ctx, app)
	s.forget(app.Name) // who asked in between saw the past
	return err
}
