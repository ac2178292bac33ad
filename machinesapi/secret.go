package machinesapi

import (
	"time"

	"github.com/bourse-dev/bourse/internal/seal"
)

// Secret describes an app's secret. It does not contain the value, because brokers do not have it in plain text.
type Secret struct {
	Name      string    `json:"name"`
	Digest    string    `json:"digest"` // secrets with the same name and value have the same digest
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// FromSecret converts a secret to the API's type.
func FromSecret(s *seal.Secret) Secret {
	return Secret{Name: s.Name, Digest: s.Digest, CreatedAt: s.CreatedAt.UTC(), UpdatedAt: s.UpdatedAt.UTC()}
}

// SecretList contains an app's secrets and their common version, which increases with each change.
// A machine that is created with this version as its min_secrets_version receives the change that
// produced the version. It also receives all earlier changes known to the broker that made that
// change.
type SecretList struct {
	Secrets []Secret `json:"secrets"`
	Version uint64   `json:"version"`
}

// SetSecrets is the body of a request that changes several secrets. A null removes a secret.
// Secrets that are not listed do not change.
type SetSecrets struct {
	Values map[string]*string `json:"values"`
}

// SetSecret is the body of a request that sets one secret.
type SetSecret struct {
	Value *string `json:"value"`
}

// ChangedSecret is the reply to a request that changes a secret.
type ChangedSecret struct {
	Secret
	Version uint64 `json:"version"`
}

// SecretsVersion is the version of an app's secrets.
type SecretsVersion struct {
	Version uint64 `json:"version"`
}
