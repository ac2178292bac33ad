package lookup

import (
	"context"
	"errors"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// NewApp describes an app to create.
type NewApp struct {
	Name    bourse.AppName // may be empty if the idempotency key has been used before
	Org     string
	Network string
	Key     string // idempotency key: creating an app again with the same key returns the first app
}

// Create creates an app. Errors: invalid; already_exists; unavailable if the call had no effect; timeout if no other
// member confirmed the app.
func (s *Apps) Create(ctx context.Context, want NewApp) (bourse.App, error) {
	all, err := s.all(ctx)
	all, _, err = s.complete(ctx, viewResult{known: all, failed: err, search: s.maySearch()})
	if err != nil {
		return bourse.App{}, err
	}
	id := bourse.NewAppID()
	if want.Key != "" {
		id = bourse.IDOf("idempotency key", want.Org, want.Key)
		if first, ok := byID(all, id); ok {
			return repeatedCreation(first, want.Name)
		}
	}
	if want.Name == "" {
		return bourse.App{}, bourse.Errorf(bourse.CodeInvalid, "name is required")
	}
	if _, ok := existing(all, want.Name); ok {
		return bourse.App{}, ErrNameTaken
	}
	// Read the clock as late as possible. If two brokers create apps with the same name, the merge keeps the one with
	// the earlier CreatedAt. If the clock were read too early, this app could replace one that already exists.
	app := bourse.App{Name: want.Name, ID: id, Org: want.Org, Network: want.Network, CreatedAt: s.Now().UTC()}
	if old, ok := all[want.Name]; ok {
		app.Generation = old.Generation + 1 // old is a tombstone, so this is a new app with the same name
	}
	merged, err := s.View.PutApp(ctx, app)
	if err != nil {
		return bourse.App{}, err
	}
	if merged.ID != id || merged.DeletedAt != nil {
		return bourse.App{}, ErrNameTaken // another broker created the app first
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

// Errors that clients distinguish from other errors with the same code.
var (
	// ErrNoApp is the error for a missing app.
	ErrNoApp = bourse.Errorf(bourse.CodeNotFound, machinesapi.NoAppText)
	// ErrNameTaken is the error for an app name that is already taken. Clients look for its text.
	ErrNameTaken = bourse.Errorf(bourse.CodeAlreadyExists, "Validation failed: Name has already been taken")
	// ErrKeyUsed is wrapped by the error for an idempotency key that was used for another app.
	ErrKeyUsed = errors.New("the idempotency key was used")
)

// repeatedCreation returns the app that was created earlier with the same idempotency key. It
// returns an error if that app's name differs from the requested one, or if that app was deleted.
func repeatedCreation(first bourse.App, name bourse.AppName) (bourse.App, error) {
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

// Delete replaces the app's record with a tombstone. Errors: unavailable, timeout.
func (s *Apps) Delete(ctx context.Context, app bourse.App) error {
	now := s.Now().UTC()
	app.DeletedAt = &now
	s.forget(app.Name)
	_, err := s.View.PutApp(ctx, app)
	s.forget(app.Name) // a concurrent request may have cached the app again
	return err
}
