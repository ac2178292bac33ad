package tenant

import (
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/seal"
)

// merge applies values to the app's current secrets, adds the resulting changes to c, and returns the app's secrets
// after the change. A nil value removes a secret; removing a missing secret has no effect. Errors: invalid,
// failed_precondition.
func (s *Secrets) merge(c *seal.Change, current []seal.Secret, values map[string]*string) ([]seal.Secret, error) {
	after := make([]seal.Secret, 0, len(current)+len(values))
	created := map[string]seal.Secret{}
	for _, old := range current {
		value, named := values[old.Name]
		if named {
			created[old.Name] = old
		}
		switch {
		case !named:
			after = append(after, old)
		case value == nil:
			c.Gone = append(c.Gone, old.Name)
		}
	}
	for name, value := range values {
		if value == nil {
			continue
		}
		next, err := s.sealed(c, name, *value)
		if err != nil {
			return nil, err
		}
		if old, ok := created[name]; ok {
			next.CreatedAt = old.CreatedAt
		}
		c.Put = append(c.Put, next)
	}
	byName := func(a, b seal.Secret) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(c.Put, byName)
	after = append(after, c.Put...)
	slices.SortFunc(after, byName)
	return after, nil
}

// sealed encrypts a value and returns the resulting secret.
func (s *Secrets) sealed(c *seal.Change, name, value string) (seal.Secret, error) {
	if err := check(name, value); err != nil {
		return seal.Secret{}, err
	}
	if s.Keys == nil {
		return seal.Secret{}, bourse.Errorf(bourse.CodeFailedPrecondition,
			"failed_precondition: this broker cannot encrypt secrets, because it has no secrets.key in --credentials")
	}
	now, p, keys := s.Now().UTC(), seal.Place{App: c.App.ID, Name: name}, s.Keys()
	text, err := keys.Seal(p, []byte(value))
	return seal.Secret{
		Name: name, Digest: keys.Digest(p, []byte(value)), Sealed: text, Version: c.Mark.Version, CreatedAt: now, UpdatedAt: now,
	}, err
}

// check returns CodeInvalid if a secret cannot be passed as an environment variable. The error does not contain the
// value.
func check(name, value string) error {
	switch {
	case !isName(name):
		return bourse.Errorf(bourse.CodeInvalid, "secret %s: use 1 to %d letters, digits and underscores, not starting with a digit", bourse.Quoted(name), maxSecretName)
	case len(value) > maxValue:
		return bourse.Errorf(bourse.CodeInvalid, "the value of secret %s has %d bytes, which exceeds the limit of %d", name, len(value), maxValue)
	case strings.ContainsRune(value, 0):
		return bourse.Errorf(bourse.CodeInvalid, "the value of secret %s contains a zero byte, which environment variables do not support: encode it", name)
	}
	return nil
}

func isName(s string) bool {
	if len(s) == 0 || len(s) > maxSecretName {
		return false
	}
	for i, c := range []byte(s) {
		letter := c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// checkTotal checks whether the app may have the given secrets, which are all secrets that it would have after a
// change. Errors: forbidden (a quota), invalid.
func (s *Secrets) checkTotal(app bourse.App, all []seal.Secret) error {
	total := 0
	for i := range all {
		total += len(all[i].Name) + len(all[i].Sealed) - seal.Overhead
	}
	if total > maxTotal {
		return bourse.Errorf(bourse.CodeInvalid, "the app's secrets would have %d bytes, which exceeds the limit of %d: store larger data in a volume", total, maxTotal)
	}
	return s.MayHave(app, len(all))
}
