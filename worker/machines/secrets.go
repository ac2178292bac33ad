package machines

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/seal"
	"github.com/bourse-dev/bourse/store"
)

// Secrets are the secrets of machines' apps, which are known by their ids, and
// opened with the keys that came with a machine's order, update or start.
type Secrets interface {
	// Await waits until a start can have an app's secrets up to a version, for a
	// bounded time. Codes: unavailable, failed_precondition (the keys do not open
	// them).
	Await(ctx context.Context, app string, version uint64, keys bourse.AppKeys) error
	// Of returns them by name, and up to which version they are. Codes: as Await.
	Of(ctx context.Context, app string, version uint64, keys bourse.AppKeys) (map[string]string, uint64, error)
}

// withSecrets reports whether a machine gets its app's secrets. A poller's host is
// none of the cluster's, and gets none.
func withSecrets(m *bourse.Machine) bool {
	return !m.SkipSecrets && m.Config.ImageKind() != bourse.PollerImage
}

// keepKeys records the keys that a broker has sent for a machine, if it has sent any:
// later starts by a policy, a request or a schedule come without a broker.
func keepKeys(tx *store.Tx, id bourse.MachineID, keys bourse.AppKeys) error {
	if len(keys) == 0 {
		return nil
	}
	return tx.PutAppKeys(id, keys)
}

// keysOf returns the keys that are recorded for a machine.
func (ms *Machines) keysOf(m *bourse.Machine) (keys bourse.AppKeys, err error) {
	err = ms.state.Store.View(func(tx *store.Tx) error {
		keys = tx.AppKeys(m.ID)
		return nil
	})
	return keys, err
}

// secretsOf returns what m's program gets of its app's secrets, and their version.
func (ms *Machines) secretsOf(ctx context.Context, m *bourse.Machine) (map[string]string, uint64, error) {
	if !withSecrets(m) {
		return nil, 0, nil
	}
	app, err := ms.appOf(m)
	if err != nil {
		return nil, 0, err
	}
	keys, err := ms.keysOf(m)
	if err != nil {
		return nil, 0, err
	}
	values, version, err := ms.secrets.Of(ctx, app, m.Secrets, keys)
	if bourse.CodeOf(err) == bourse.CodeFailedPrecondition { // another attempt with these keys would end the same way
		err = bourse.Errorf(bourse.CodeInvalid, "%w", err)
	}
	if err != nil {
		return nil, 0, err
	}
	if err := CheckSecrets(&m.Config, values); err != nil {
		return nil, 0, err
	}
	return values, version, nil
}

// appOf returns the id of m's app, which records of former releases do not have.
func (ms *Machines) appOf(m *bourse.Machine) (string, error) {
	if m.AppID != "" {
		return m.AppID, nil
	}
	app, _, err := ms.state.App(m.App)
	return app.ID, err
}

// awaitSecrets refuses to start m, or to stop it for another start, while its
// secrets cannot be had: with the keys that came for that, or with those of its
// record if none did.
func (ms *Machines) awaitSecrets(ctx context.Context, m *bourse.Machine, version uint64, keys bourse.AppKeys) error {
	if !withSecrets(m) {
		return nil
	}
	app, err := ms.appOf(m)
	if err == nil && len(keys) == 0 {
		keys, err = ms.keysOf(m)
	}
	if err != nil {
		return err
	}
	return ms.secrets.Await(ctx, app, max(m.Secrets, version), keys)
}

// SecretsView reads the sealed secrets of apps, which are identified by their ids.
type SecretsView interface {
	Secrets(ctx context.Context, app string) ([]seal.Secret, error)
	// AwaitSecrets returns how far brokers have come in changing an app's secrets,
	// once that is a version or as it is when ctx ends.
	AwaitSecrets(ctx context.Context, app string, version uint64) (seal.Marks, error)
	// AwaitSynced returns once the view has been compared with another server's
	// since it was made or opened, or when ctx ends.
	AwaitSynced(ctx context.Context)
}

const howToGiveKeys = "start or update it through a broker that has --secrets-key: bourse machine restart, or bourse deploy"

// SecretsPatience is how long a start waits for what the view does not have.
const SecretsPatience = 5 * time.Second

// SecretReader opens secrets.
type SecretReader struct {
	View SecretsView // nil: the worker has no view, and so no secrets
}

// Await waits until a machine that must have an app's secrets up to a version can
// have them, and tries whether they open: nothing is stopped for a start that could
// not be. Codes: as Of.
func (s *SecretReader) Await(ctx context.Context, app string, version uint64, keys bourse.AppKeys) error {
	_, _, err := s.Of(ctx, app, version, keys)
	return err
}

func (s *SecretReader) await(ctx context.Context, app string, version uint64) (seal.Marks, error) {
	if s.View == nil {
		if version == 0 {
			return nil, nil
		}
		return nil, bourse.Errorf(bourse.CodeUnavailable, "this worker has no view, and so no secrets")
	}
	ctx, cancel := context.WithTimeout(ctx, SecretsPatience)
	defer cancel()
	s.View.AwaitSynced(ctx)
	marks, err := s.View.AwaitSecrets(ctx, app, version)
	if err == nil && !marks.Has(version) {
		err = bourse.Errorf(bourse.CodeUnavailable, "version %d of the app's secrets has not come to this worker, which starts no machine without them", version)
	}
	return marks, err
}

// Of returns an app's secrets by name, up to a version at least, and up to which
// they are. Codes: unavailable, failed_precondition (the keys do not open one).
func (s *SecretReader) Of(ctx context.Context, app string, version uint64, keys bourse.AppKeys) (map[string]string, uint64, error) {
	marks, err := s.await(ctx, app, version)
	if err != nil || len(marks) == 0 {
		return nil, 0, err
	}
	list, err := s.View.Secrets(ctx, app) // after the marks: they may be newer
	if err != nil || len(list) == 0 {
		return nil, marks.Version(), err
	}
	if len(keys) == 0 {
		return nil, 0, bourse.Errorf(bourse.CodeFailedPrecondition, "the app has secrets, and the machine was given no keys to open them: %s", howToGiveKeys)
	}
	out := make(map[string]string, len(list))
	for i := range list {
		value, err := seal.Open(keys, seal.Place{App: app, Name: list[i].Name}, list[i].Sealed)
		if err != nil {
			return nil, 0, bourse.Errorf(bourse.CodeFailedPrecondition, "%w: %s", err, howToGiveKeys)
		}
		out[list[i].Name] = string(value)
	}
	return out, marks.Version(), nil
}
