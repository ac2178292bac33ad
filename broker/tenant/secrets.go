package tenant

import (
	"context"
	"hash/fnv"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/lookup"
	"github.com/bourse-dev/bourse/internal/seal"
)

// SecretView stores the secrets of apps. Its methods identify an app by its ID.
type SecretView interface {
	// Secrets returns the secrets of an app, sorted by name.
	Secrets(ctx context.Context, app string) ([]seal.Secret, error)
	// SecretMarks returns, for each broker, the latest version of the app's secrets that the broker
	// has written.
	SecretMarks(ctx context.Context, app string) (seal.Marks, error)
	// AwaitSecrets waits until the view contains the given version of an app's secrets, or until ctx is done. It then
	// returns the app's marks, as SecretMarks does.
	AwaitSecrets(ctx context.Context, app string, version uint64) (seal.Marks, error)
	// ChangeSecrets stores a change in the view. The caller must then call spread, which waits
	// until some other members have received the change. CodeUnavailable means that ChangeSecrets
	// had no effect.
	ChangeSecrets(ctx context.Context, c *seal.Change) (spread func(context.Context), err error)
	// ClearSecrets removes all secrets of a deleted app.
	ClearSecrets(ctx context.Context, app string) error
}

// SecretsConfig configures Secrets.
type SecretsConfig struct {
	View    SecretView
	Apps    *lookup.Apps
	Keys    func() *seal.Keys           // returns the keys that encrypt secrets, from which the workers' keys are derived; nil: secrets cannot be set here
	Writer  seal.Writer                 // identifies this broker in the versions of secrets
	MayHave func(bourse.App, int) error // returns an error if the app may not have the given number of secrets
	Now     func() time.Time
	Timeout time.Duration // how long to wait for a version to arrive in the view
}

// Secrets serves the endpoints for app secrets.
type Secrets struct {
	SecretsConfig
	changing [16]sync.Mutex // locks held during changes, selected by a hash of the app's ID
}

// NewSecrets returns a Secrets with the given configuration.
func NewSecrets(c SecretsConfig) *Secrets { return &Secrets{SecretsConfig: c} }

// Limits for secrets. The kernel also limits the total size of a program's environment.
const (
	maxValue      = 64 << 10  // in bytes
	maxTotal      = 512 << 10 // total size of an app's values, in bytes
	maxSecretName = 128
)

// Require returns the version of an app's secrets that a machine must receive when it is created or started. This is
// the latest version known to this broker or, if that version does not include version minimum, minimum itself. If
// minimum is 0 and the view cannot be read, the version is 0. Require also returns the keys that the worker needs to
// decrypt the app's secrets, or nil if this broker has no keys. It returns keys even if the app has no secrets, because
// the app may have secrets by the time the machine next starts. Errors: failed_precondition if version minimum has not
// arrived at this broker; unavailable.
func (s *Secrets) Require(ctx context.Context, app string, minimum uint64) (uint64, bourse.AppKeys, error) {
	var keys bourse.AppKeys
	if s.Keys != nil {
		keys = s.Keys().OfApp(app)
	}
	marks, err := s.await(ctx, app, minimum)
	if err != nil && minimum == 0 {
		return 0, keys, nil // the view is only a hint (invariant 8), and the worker has its own view
	}
	if err != nil {
		return 0, nil, err
	}
	if latest := marks.Version(); marks.Includes(latest, minimum) {
		return latest, keys, nil
	}
	return minimum, keys, nil // two brokers have changed the secrets at the same time, so latest does not include minimum
}

// await waits until an app's marks include the given version, and returns the marks.
func (s *Secrets) await(ctx context.Context, app string, version uint64) (seal.Marks, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	marks, err := s.View.AwaitSecrets(ctx, app, version)
	if err == nil && !marks.Has(version) {
		err = bourse.Errorf(bourse.CodeFailedPrecondition, "failed_precondition: version %d of the app's secrets has not arrived at this broker", version)
	}
	return marks, err
}

// Clear removes the secrets of a deleted app.
func (s *Secrets) Clear(ctx context.Context, app string) error { return s.View.ClearSecrets(ctx, app) }

// change sets secrets, and removes those whose value is nil. It returns the resulting version and all of the app's
// secrets.
func (s *Secrets) change(ctx context.Context, app bourse.App, values map[string]*string) (uint64, []seal.Secret, error) {
	spread, version, list, err := s.changeHere(ctx, app, values)
	if spread != nil {
		spread(ctx)
	}
	return version, list, err
}

func (s *Secrets) changeHere(ctx context.Context, app bourse.App, values map[string]*string) (func(context.Context), uint64, []seal.Secret, error) {
	mu := s.lockOf(app.ID)
	mu.Lock()
	defer mu.Unlock()
	current, err := s.View.Secrets(ctx, app.ID)
	if err != nil {
		return nil, 0, nil, err
	}
	marks, err := s.View.SecretMarks(ctx, app.ID)
	if err != nil {
		return nil, 0, nil, err
	}
	c := seal.Change{App: app.Ref(), Mark: marks.Next(s.Writer, s.Now())}
	after, err := s.merge(&c, current, values)
	if err != nil {
		return nil, 0, nil, err
	}
	if len(c.Put)+len(c.Gone) == 0 {
		return nil, marks.Version(), current, nil
	}
	if len(c.Put) > 0 {
		if err := s.checkTotal(app, after); err != nil {
			return nil, 0, nil, err
		}
	}
	spread, err := s.View.ChangeSecrets(ctx, &c)
	return spread, c.Mark.Version, after, err
}

// lockOf returns the lock that must be held while an app's secrets are changed.
func (s *Secrets) lockOf(app string) *sync.Mutex {
	h := fnv.New32a()
	_, _ = h.Write([]byte(app)) // writing to a hash never fails
	return &s.changing[h.Sum32()%uint32(len(s.changing))]
}
