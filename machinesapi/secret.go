package machinesapi

import (
	"time"

	"github.com/bourse-dev/bourse/internal/seal"
)

// Secret is an app's secret without its value, which brokers do not have in plain text.
type Secret struct {
	Name      string    `json:"name"`
	Digest    string    `json:"digest"` // equal values of the same name have equal digests
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// FromSecret returns a secret in its public form.
func FromSecret(s *seal.Secret) Secret {
	return Secret{Name: s.Name, Digest: s.Digest, CreatedAt: s.CreatedAt.UTC(), UpdatedAt: s.UpdatedAt.UTC()}
}

// SecretList contains an app's secrets. Version increases with each change. A machine created with this
// min_secrets_version receives all changes up to this one.
type SecretList struct {
	Secrets []Secret `json:"secrets"`
	Version uint64   `json:"version"`
}

// SetSecrets is the body of a request to change several secrets. Omitted secrets do not change; null removes a
// secret.
type SetSecrets struct {
	Values map[string]*string `json:"values"`
}

// SetSecret is the body of a request to set one secret.
type SetSecret struct {
	Value *string `json:"value"`
}

// ChangedSecret is a secret after a change.
type ChangedSecret struct {
	Secret
	Version uint64 `json:"version"`
}

// SecretsVersion is the version of an app's secrets.
type SecretsVersion struct {
	Version uint64 `json:"version"`
}
