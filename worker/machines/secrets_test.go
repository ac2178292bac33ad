package machines_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/seal"
	"github.com/bourse-dev/bourse/worker/machines"
)

// view is a view in memory whose contents may arrive later.
type view struct {
	list   []seal.Secret
	marks  seal.Marks
	synced chan struct{} // closed once the view was compared with another one
	came   chan struct{} // closed once list and marks have arrived
}

func (v *view) there() bool {
	select {
	case <-v.came:
		return true
	default:
		return false
	}
}

func (v *view) Secrets(context.Context, string) ([]seal.Secret, error) {
	if !v.there() {
		return nil, nil
	}
	return v.list, nil
}

func (v *view) AwaitSecrets(ctx context.Context, _ string, version uint64) (seal.Marks, error) {
	if !v.there() && version > 0 {
		select {
		case <-v.came:
		case <-ctx.Done():
		}
	}
	if !v.there() {
		return seal.Marks{}, nil
	}
	return v.marks, nil
}

func (v *view) AwaitSynced(ctx context.Context) {
	select {
	case <-v.synced:
	case <-ctx.Done():
	}
}

func (v *view) AppKeys(context.Context, bourse.MachineID) (bourse.AppKeys, error) {
	return nil, bourse.Errorf(bourse.CodeForbidden, "no keys")
}

// filled returns a view with the secret PASSWORD, sealed with keys, and the secret's
// version.
func filled(t *testing.T, keys *seal.Keys) (*view, uint64) {
	t.Helper()
	v := &view{marks: seal.Marks{}, synced: make(chan struct{}), came: make(chan struct{})}
	sealed, err := keys.Seal(seal.Place{App: "app", Name: "PASSWORD"}, []byte("hunter2"))
	if err != nil {
		t.Fatal(err)
	}
	v.list = []seal.Secret{{Name: "PASSWORD", Sealed: sealed}}
	mark := v.marks.Next(3, time.Now())
	v.marks.Add(mark)
	return v, mark.Version
}

func newKeys(t *testing.T) *seal.Keys {
	t.Helper()
	keys, err := seal.Read(seal.Generate())
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// A start waits until the view has been compared with another one, even if the machine had no secrets before, because
// its app may have secrets by now.
func TestAStartWaitsForANewView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := newKeys(t)
		v, version := filled(t, keys)
		s, own := &machines.SecretReader{View: v}, keys.OfApp("app")
		go func() {
			time.Sleep(time.Second)
			close(v.came)
			close(v.synced)
		}()
		got, at, err := s.Of(t.Context(), "app", 0, own)
		if err != nil || got["PASSWORD"] != "hunter2" || at != version {
			t.Errorf("secrets %v at %d, %v", got, at, err)
		}
	})
}

// A machine does not start without the version of its secrets that its record requires.
func TestNoStartWithoutItsSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := newKeys(t)
		v, version := filled(t, keys)
		s, own := &machines.SecretReader{View: v}, keys.OfApp("app")
		began := time.Now()
		if _, _, err := s.Of(t.Context(), "app", version, own); bourse.CodeOf(err) != bourse.CodeUnavailable {
			t.Errorf("a version that has not arrived: %v, want unavailable", err)
		}
		if took := time.Since(began); took > machines.SecretsTimeout {
			t.Errorf("it waited %s", took)
		}
		close(v.came) // as after a network partition, there is no other view to compare with, so the secrets that arrived before are enough
		if got, _, err := s.Of(t.Context(), "app", version, own); err != nil || got["PASSWORD"] != "hunter2" {
			t.Errorf("during a partition, with the required version: %v, %v", got, err)
		}
		if _, _, err := s.Of(t.Context(), "app", version+1024, own); bourse.CodeOf(err) != bourse.CodeUnavailable {
			t.Errorf("a later version: %v, want unavailable", err)
		}
		if _, _, err := (&machines.SecretReader{}).Of(t.Context(), "app", version, own); bourse.CodeOf(err) != bourse.CodeUnavailable {
			t.Errorf("without a view: %v, want unavailable", err)
		}
	})
}

// Only the app's own keys decrypt its secrets. The error explains what to do.
func TestOnlyTheAppsKeysOpenItsSecrets(t *testing.T) {
	keys := newKeys(t)
	v, version := filled(t, keys)
	close(v.came)
	close(v.synced)
	s := &machines.SecretReader{View: v}
	for what, c := range map[string]struct {
		app  string
		keys bourse.AppKeys
	}{
		"no keys":            {"app", nil},
		"another app's keys": {"app", keys.OfApp("other")},
		"another cluster's":  {"app", newKeys(t).OfApp("app")},
		"moved rows":         {"other", keys.OfApp("other")}, // this view returns the same secrets for all apps
		"moved, own keys":    {"other", keys.OfApp("app")},
	} {
		got, _, err := s.Of(t.Context(), c.app, version, c.keys)
		if bourse.CodeOf(err) != bourse.CodeFailedPrecondition || !strings.Contains(err.Error(), "machine restart") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, %v, want failed_precondition with an explanation of what to do", what, got, err)
		}
	}
	if got, _, err := s.Of(t.Context(), "app", version, keys.OfApp("app")); err != nil || got["PASSWORD"] != "hunter2" {
		t.Errorf("the app's own keys: %v, %v", got, err)
	}
}
