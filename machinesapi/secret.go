package machinesapi

import (
	"time"

	"github.com/bourse-dev/bourse/internal/seal"
)

// Secret is one of an app's. Its value is not among what brokers know.
type Secret struct {
	Name      string    `json:"name"`
	Digest    string    `json:"digest"` // the same for the same value of this name
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// FromSecret returns a secret in its public form.
func FromSecret(s *seal.Secret) Secret {
	return Secret{Name: s.Name, Digest: s.Digest, CreatedAt: s.CreatedAt.UTC(), UpdatedAt: s.UpdatedAt.UTC()}
}

// SecretList is an app's secrets. Version grows with each change of them: as
// min_secrets_version, a machine gets what was set until then.
type SecretList struct {
	Secrets []Secret `json:"secrets"`
	Version uint64   `json:"version"`
}

// SetSecrets is the body of a change of several secrets. Those that it does not
// name stay; null removes one.
type SetSecrets struct {
	Values map[string]*string `json:"values"`
}

// SetSecret is the body of a change of one.
type SetSecret struct {
	Value *string `json:"value"`
}

// ChangedSecret is a secret after its change.
type ChangedSecret struct {
	Secret
	Version uint64 `json:"version"`
}

// SecretsVersion is how far changes have come.
type SecretsVersion struct {
	Version uint64 `json:"version"`
}
