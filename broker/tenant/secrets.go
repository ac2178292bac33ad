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

// SecretView keeps the secrets of apps, which are known by the app's id.
type SecretView interface {
	// Secrets returns those of an app by name.
	Secrets(ctx context.Context, app string) ([]seal.Secret, error)
	// SecretMarks returns how far brokers have come in changing them.
	SecretMarks(ctx context.Context, app string) (seal.Marks, error)
	// AwaitSecrets returns SecretMarks once they have a version, or as they are
	// when ctx ends.
	AwaitSecrets(ctx context.Context, app string, version uint64) (seal.Marks, error)
	// ChangeSecrets makes a change. It is in the view when it returns; spread
	// waits until some other members have it, too. After an error with
	// CodeUnavailable nothing happened.
	ChangeSecrets(ctx context.Context, c *seal.Change) (spread func(context.Context), err error)
	// ClearSecrets removes all of an app that is gone.
	ClearSecrets(ctx context.Context, app string) error
}

// SecretsConfig says what Secrets stand on.
type SecretsConfig struct {
	View     SecretView
	Apps     *lookup.Apps
	Keys     func() *seal.Keys           // seal them, and are given to workers; nil: none can be set here
	Writer   seal.Writer                 // who this broker is in versions
	MayHave  func(bourse.App, int) error // whether an app may have so many
	Now      func() time.Time
	Patience time.Duration // for a version that the view does not have yet
}

// Secrets are the secrets of all apps.
type Secrets struct {
	SecretsConfig
	changing [16]sync.Mutex // by app: of two changes the later one has the greater version
}

// NewSecrets makes Secrets of a config.
func NewSecrets(c SecretsConfig) *Secrets { return &Secrets{SecretsConfig: c} }

// Bounds of secrets. What a program's environment may have in all is bounded by
// its kernel.
const (
	maxValue      = 64 << 10  // bytes
	maxTotal      = 512 << 10 // bytes of an app's values
	maxSecretName = 128
)

// Require returns the version that a machine of an app must have: the latest that
// is known here, once that has the one that the caller asks for; and the keys that
// its worker opens secrets with, none when this broker has none. The keys are also
// those of an app without secrets: there may be some when the machine starts again.
// Codes: failed_precondition (the version is not known here), unavailable.
func (s *Secrets) Require(ctx context.Context, app string, least uint64) (uint64, bourse.AppKeys, error) {
	var keys bourse.AppKeys
	if s.Keys != nil {
		keys = s.Keys().OfApp(app)
	}
	marks, err := s.await(ctx, app, least)
	if err != nil && least == 0 {
		return 0, keys, nil // the view is a hint, and cannot be read now: the worker has one of its own (invariant 8)
	}
	if err != nil {
		return 0, nil, err
	}
	if latest := marks.Version(); marks.Includes(latest, least) {
		return latest, keys, nil
	}
	return least, keys, nil // two brokers changed them at once
}

// await returns how far changes have come, once that is a version.
func (s *Secrets) await(ctx context.Context, app string, version uint64) (seal.Marks, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Patience)
	defer cancel()
	marks, err := s.View.AwaitSecrets(ctx, app, version)
	if err == nil && !marks.Has(version) {
		err = bourse.Errorf(bourse.CodeFailedPrecondition, "failed_precondition: version %d of the app's secrets is not known here", version)
	}
	return marks, err
}

// Clear removes the secrets of an app that is gone.
func (s *Secrets) Clear(ctx context.Context, app string) error { return s.View.ClearSecrets(ctx, app) }

// change sets secrets, and removes those without a value. It returns the version
// of the app's secrets then, and all of them.
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

// lockOf returns what keeps changes of one app apart.
func (s *Secrets) lockOf(app string) *sync.Mutex {
	h := fnv.New32a()
	_, _ = h.Write([]byte(app)) // a hash takes all writes
	return &s.changing[h.Sum32()%uint32(len(s.changing))]
}
