package broker_test

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/broker/tenant"
	"github.com/bourse-dev/bourse/internal/seal"
)

// fakeSecrets is an in-memory view of secrets. Its hidden parts simulate data that has not arrived
// yet.
type fakeSecrets struct {
	mu     sync.Mutex
	of     map[string]map[string]seal.Secret // by app ID and name
	marks  map[string]seal.Marks
	putErr error
	getErr error
}

var _ tenant.SecretView = (*fakeSecrets)(nil)

func newFakeSecrets() *fakeSecrets {
	return &fakeSecrets{of: map[string]map[string]seal.Secret{}, marks: map[string]seal.Marks{}}
}

func (v *fakeSecrets) Secrets(_ context.Context, app string) ([]seal.Secret, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []seal.Secret
	for _, s := range v.of[app] {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b seal.Secret) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func (v *fakeSecrets) SecretMarks(_ context.Context, app string) (seal.Marks, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.getErr != nil {
		return nil, v.getErr
	}
	out := seal.Marks{}
	for _, m := range v.marks[app] {
		out.Add(m)
	}
	return out, nil
}

func (v *fakeSecrets) AwaitSecrets(ctx context.Context, app string, _ uint64) (seal.Marks, error) {
	return v.SecretMarks(ctx, app)
}

func (v *fakeSecrets) ChangeSecrets(_ context.Context, c *seal.Change) (func(context.Context), error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.putErr != nil {
		return nil, v.putErr
	}
	if v.of[c.App.ID] == nil {
		v.of[c.App.ID], v.marks[c.App.ID] = map[string]seal.Secret{}, seal.Marks{}
	}
	for _, s := range c.Put {
		v.of[c.App.ID][s.Name] = s
	}
	for _, name := range c.Gone {
		delete(v.of[c.App.ID], name)
	}
	v.marks[c.App.ID].Add(c.Mark)
	return func(context.Context) {}, nil
}

func (v *fakeSecrets) ClearSecrets(_ context.Context, app string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.of, app)
	delete(v.marks, app)
	return nil
}

// sealing returns a change to a broker's config that enables secrets, and the keys that the broker
// then uses.
func sealing(view *fakeSecrets) (func(*broker.Config), *seal.Keys) {
	keys, err := seal.Read(seal.Generate())
	if err != nil {
		panic(err)
	}
	return func(c *broker.Config) {
		c.Secrets, c.Keys, c.Writer = view, func() *seal.Keys { return keys }, 7
	}, keys
}
