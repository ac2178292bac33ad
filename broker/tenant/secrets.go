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

// SecretView stores the secrets of apps by app ID.
type SecretView interface {
	// Secrets returns the secrets of an app by name.
	Secrets(ctx context.Context, app string) ([]seal.Secret, error)
	// SecretMarks returns each broker's latest version of them.
	SecretMarks(ctx context.Context, app string) (seal.Marks, error)
	// AwaitSecrets returns SecretMarks once they include a version, or the current ones when ctx ends.
	AwaitSecrets(ctx context.Context, app string, version uint64) (seal.Marks, error)
	// ChangeSecrets stores a change in the view. The caller then calls spread, which waits until some other members
	// have received the change. CodeUnavailable means that ChangeSecrets had no effect.
	ChangeSecrets(ctx context.Context, c *seal.Change) (spread func(context.Context), err error)
	// ClearSecrets removes all secrets of a deleted app.
	ClearSecrets(ctx context.Context, app string) error
}

// SecretsConfig configures Secrets.
type SecretsConfig struct {
	View     SecretView
	Apps     *lookup.Apps
	Keys     func() *seal.Keys           // encrypt secrets and derive the keys for workers; nil: secrets cannot be set here
	Writer   seal.Writer                 // this broker's number in versions
	MayHave  func(bourse.App, int) error // reports whether an app may have so many secrets
	Now      func() time.Time
	Patience time.Duration // how long to wait for a version to arrive in the view
}

// Secrets serves the secrets of all apps.
type Secrets struct {
	SecretsConfig
	changing [16]sync.Mutex // by app: versions must increase from change to change
}

// NewSecrets creates Secrets.
func NewSecrets(c SecretsConfig) *Secrets { return &Secrets{SecretsConfig: c} }

// Limits of secrets. A kernel also limits the total size of a program's environment.
const (
	maxValue      = 64 << 10  // bytes
	maxTotal      = 512 << 10 // bytes of an app's values
	maxSecretName = 128
)

// Require returns the version of the secrets that an app's machine must have: the latest known one, which must
// include least. It also returns the keys with which the worker decrypts the app's secrets, or nil if this broker has
// none. An app without secrets has keys, too, because it may have secrets when the machine is next started. Errors:
// failed_precondition (version least has not arrived here), unavailable.
func (s *Secrets) Require(ctx context.Context, app string, least uint64) (uint64, bourse.AppKeys, error) {
	var keys bourse.AppKeys
	if s.Keys != nil {
		keys = s.Keys().OfApp(app)
	}
	marks, err := s.await(ctx, app, least)
	if err != nil && least == 0 {
		return 0, keys, nil // the view is only a hint, and the worker has one of its own (invariant 8)
	}
	if err != nil {
		return 0, nil, err
	}
	if latest := marks.Version(); marks.Includes(latest, least) {
		return latest, keys, nil
	}
	return least, keys, nil // two brokers have changed them at the same time
}

// await returns the marks of an app's secrets once they include a version.
func (s *Secrets) await(ctx context.Context, app string, version uint64) (seal.Marks, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Patience)
	defer cancel()
	marks, err := s.View.AwaitSecrets(ctx, app, version)
	if err == nil && !marks.Has(version) {
		err = bourse.Errorf(bourse.CodeFailedPrecondition, "failed_precondition: version %d of the app's secrets has not arrived at this broker", version)
	}
	return marks, err
}

// Clear removes the secrets of a deleted app.
func (s *Secrets) Clear(ctx context.Context, app string) error { return s.View.ClearSecrets(ctx, app) }

// change sets secrets, and removes those with a nil value. It returns the resulting version and all of the app's
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
	has, err := s.View.Secrets(ctx, app.ID)
	if err != nil {
		return nil, 0, nil, err
	}
	marks, err := s.View.SecretMarks(ctx, app.ID)
	if err != nil {
		return nil, 0, nil, err
	}
	c := seal.Change{App: app.Ref(), Mark: marks.Next(s.Writer, s.Now())}
	after, err := s.merge(&c, has, values)
	if err != nil {
		return nil, 0, nil, err
	}
	if len(c.Put)+len(c.Gone) == 0 {
		return nil, marks.Version(), has, nil
	}
	if len(c.Put) > 0 {
		if err := s.fits(app, after); err != nil {
			return nil, 0, nil, err
		}
	}
	spread, err := s.View.ChangeSecrets(ctx, &c)
	return spread, c.Mark.Version, after, err
}

// lockOf returns the lock that serializes changes of an app.
func (s *Secrets) lockOf(app string) *sync.Mutex {
	h := fnv.New32a()
	_, _ = h.Write([]byte(app)) // writing to a hash never fails
	return &s.changing[h.Sum32()%uint32(len(s.changing))]
}
