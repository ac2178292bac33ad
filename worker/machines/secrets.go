package machines

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/seal"
	"github.com/bourse-dev/bourse/store"
)

// withSecrets reports whether a machine gets its app's secrets. Machines that pollers run do not get any, because a
// poller's host is not part of the cluster.
func withSecrets(m *bourse.Machine) bool {
	return !m.SkipSecrets && m.Config.ImageKind() != bourse.PollerImage
}

// keepKeys records the keys for a machine's secrets, if a broker has sent any. The worker needs them when a restart
// policy or a schedule starts the machine later, without a broker.
func keepKeys(tx *store.Tx, id bourse.MachineID, keys bourse.AppKeys) error {
	if len(keys) == 0 {
		return nil
	}
	return tx.PutAppKeys(id, keys)
}

// keysOf returns a machine's recorded keys.
func (ms *Machines) keysOf(m *bourse.Machine) (keys bourse.AppKeys, err error) {
	err = ms.state.Store.View(func(tx *store.Tx) error {
		keys = tx.AppKeys(m.ID)
		return nil
	})
	return keys, err
}

// secretsOf returns the secrets for m's program, and their version.
func (ms *Machines) secretsOf(ctx context.Context, m *bourse.Machine) (map[string]string, uint64, error) {
	if !withSecrets(m) {
		return nil, 0, nil
	}
	values, version, err := ms.openSecrets(ctx, m, m.Secrets, nil)
	if bourse.CodeOf(err) == bourse.CodeFailedPrecondition { // another attempt with these keys would also fail
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

// openSecrets decrypts the given version, or a later one, of the secrets of m's app. If keys is empty, it uses the
// recorded keys. If the recorded keys cannot decrypt the secrets, the cluster's key for secrets may have been replaced
// since the machine's last start, so openSecrets requests new keys from a broker and records them. It returns the same
// errors as [SecretReader.Of].
func (ms *Machines) openSecrets(ctx context.Context, m *bourse.Machine, version uint64, keys bourse.AppKeys) (map[string]string, uint64, error) {
	app, err := ms.appOf(m)
	if err != nil {
		return nil, 0, err
	}
	if len(keys) > 0 {
		return ms.secrets.Of(ctx, app, version, keys)
	}
	if keys, err = ms.keysOf(m); err != nil {
		return nil, 0, err
	}
	values, latest, err := ms.secrets.Of(ctx, app, version, keys)
	if bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
		return values, latest, err
	}
	keys, askErr := ms.secrets.View.AppKeys(ctx, m.ID)
	switch bourse.CodeOf(askErr) {
	case "":
	case bourse.CodeUnavailable, bourse.CodeTimeout:
		return nil, 0, bourse.Errorf(bourse.CodeUnavailable, "%w; no broker answered the request for keys: %w", err, askErr)
	default:
		return nil, 0, err
	}
	values, latest, err = ms.secrets.Of(ctx, app, version, keys)
	if err == nil {
		err = ms.state.Store.Update(ctx, func(tx *store.Tx) error { return keepKeys(tx, m.ID, keys) })
	}
	return values, latest, err
}

// appOf returns the id of m's app.
func (ms *Machines) appOf(m *bourse.Machine) (string, error) {
	if m.AppID != "" {
		return m.AppID, nil
	}
	app, _, err := ms.state.App(m.App)
	return app.ID, err
}

// awaitSecrets waits for m's secrets and checks that they can be decrypted. It is called before m is started or
// restarted, so that a running machine is not stopped if it could not be started again. If keys is empty, it uses the
// recorded keys. It returns the same errors as [SecretReader.Of].
func (ms *Machines) awaitSecrets(ctx context.Context, m *bourse.Machine, version uint64, keys bourse.AppKeys) error {
	if !withSecrets(m) {
		return nil
	}
	_, _, err := ms.openSecrets(ctx, m, max(m.Secrets, version), keys)
	return err
}

// SecretsView reads apps' sealed secrets. Its methods identify an app by its id.
type SecretsView interface {
	Secrets(ctx context.Context, app string) ([]seal.Secret, error)
	// AwaitSecrets waits until the given version of an app's secrets has arrived, or until ctx is done. It returns the
	// versions that have arrived by then.
	AwaitSecrets(ctx context.Context, app string, version uint64) (seal.Marks, error)
	// AwaitSynced waits until the view has been compared with another server's view at least
	// once since it was opened, or until ctx is done.
	AwaitSynced(ctx context.Context)
	// AppKeys asks a broker for the keys of a machine's app.
	AppKeys(ctx context.Context, machine bourse.MachineID) (bourse.AppKeys, error)
}

const secretsKeyHint = "start or update it through a broker that has secrets.key: bourse machine restart, or bourse deploy"

// SecretsTimeout limits how long a start waits for secrets that have not reached the view yet.
const SecretsTimeout = 5 * time.Second

// SecretReader decrypts apps' secrets with the keys that a broker has sent for a machine.
type SecretReader struct {
	View SecretsView // nil if the worker has no view, and therefore no secrets
}

func (s *SecretReader) await(ctx context.Context, app string, version uint64) (seal.Marks, error) {
	if s.View == nil {
		if version == 0 {
			return nil, nil
		}
		return nil, bourse.Errorf(bourse.CodeUnavailable, "this worker has no view, and therefore no secrets")
	}
	ctx, cancel := context.WithTimeout(ctx, SecretsTimeout)
	defer cancel()
	s.View.AwaitSynced(ctx)
	marks, err := s.View.AwaitSecrets(ctx, app, version)
	if err == nil && !marks.Has(version) {
		err = bourse.Errorf(bourse.CodeUnavailable, "version %d of the app's secrets has not reached this worker, and the machine cannot start without it", version)
	}
	return marks, err
}

// Of returns an app's secrets by name, and their version. It waits up to SecretsTimeout for the given version or a
// later one. Errors: unavailable if the secrets have not arrived, failed_precondition if they cannot be decrypted with
// the keys.
func (s *SecretReader) Of(ctx context.Context, app string, version uint64, keys bourse.AppKeys) (map[string]string, uint64, error) {
	marks, err := s.await(ctx, app, version)
	if err != nil || len(marks) == 0 {
		return nil, 0, err
	}
	list, err := s.View.Secrets(ctx, app) // read after AwaitSecrets, so that the secrets are at least as new as the versions that it returned
	if err != nil || len(list) == 0 {
		return nil, marks.Version(), err
	}
	if len(keys) == 0 {
		return nil, 0, bourse.Errorf(bourse.CodeFailedPrecondition, "the app has secrets, but the machine has no keys to decrypt them: %s", secretsKeyHint)
	}
	out := make(map[string]string, len(list))
	for i := range list {
		value, err := seal.Open(keys, seal.Place{App: app, Name: list[i].Name}, list[i].Sealed)
		if err != nil {
			return nil, 0, bourse.Errorf(bourse.CodeFailedPrecondition, "%w: %s", err, secretsKeyHint)
		}
		out[list[i].Name] = string(value)
	}
	return out, marks.Version(), nil
}
