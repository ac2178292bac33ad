package machinesapi

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"
)

// AppSecrets are the secrets of one app, as a client reaches them.
type AppSecrets struct {
	Client *Client
	App    bourse.AppName
}

// Secrets returns the client's way to an app's secrets.
func (c *Client) Secrets(app bourse.AppName) AppSecrets { return AppSecrets{c, app} }

func (s AppSecrets) path(name ...string) string {
	return path(append([]string{"apps", string(s.App), "secrets"}, name...)...)
}

// List lists them by name, without their values. Codes: not_found (the app).
func (s AppSecrets) List(ctx context.Context) (SecretList, error) {
	var out SecretList
	_, err := s.Client.do(ctx, call{method: http.MethodGet, path: s.path(), out: &out})
	return out, err
}

// Get finds one. Codes: not_found (the app, or the secret).
func (s AppSecrets) Get(ctx context.Context, name string) (Secret, error) {
	var out Secret
	_, err := s.Client.do(ctx, call{method: http.MethodGet, path: s.path(name), out: &out})
	return out, err
}

// Change sets several at once; a nil value removes one. The reply has all that
// the app has then. Codes: invalid, not_found (the app), forbidden (a quota),
// failed_precondition (the broker cannot seal).
func (s AppSecrets) Change(ctx context.Context, values map[string]*string) (SecretList, error) {
	var out SecretList
	_, err := s.Client.do(ctx, call{method: http.MethodPost, path: s.path(), in: SetSecrets{values}, out: &out})
	return out, err
}

// Set is Change of one.
func (s AppSecrets) Set(ctx context.Context, name, value string) (ChangedSecret, error) {
	var out ChangedSecret
	_, err := s.Client.do(ctx, call{method: http.MethodPost, path: s.path(name), in: SetSecret{&value}, out: &out})
	return out, err
}

// Delete removes one; one that is not there is no error. It returns the version
// of the app's secrets. Codes: not_found (the app).
func (s AppSecrets) Delete(ctx context.Context, name string) (uint64, error) {
	var out SecretsVersion
	_, err := s.Client.do(ctx, call{method: http.MethodDelete, path: s.path(name), out: &out})
	return out.Version, err
}
