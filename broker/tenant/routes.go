package tenant

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/internal/seal"
	"github.com/bourse-dev/bourse/machinesapi"
)

const (
	allSecrets = endpoint.OneApp + "/secrets"
	oneSecret  = allSecrets + "/{name}"
)

// Routes returns the endpoints for secrets.
func (s *Secrets) Routes() []endpoint.Route {
	return []endpoint.Route{
		endpoint.On("GET "+allSecrets, endpoint.App, s.list).Writes(machinesapi.SecretList{}).Asks("version", "min_version", "show_secrets"),
		endpoint.On("POST "+allSecrets, endpoint.App, s.set).Reads(machinesapi.SetSecrets{}).Writes(machinesapi.SecretList{}),
		endpoint.On("GET "+oneSecret, endpoint.App, s.get).Writes(machinesapi.Secret{}).Asks("version", "min_version", "show_secrets"),
		endpoint.On("POST "+oneSecret, endpoint.App, s.setOne).Reads(machinesapi.SetSecret{}).Makes(machinesapi.ChangedSecret{}),
		endpoint.On("DELETE "+oneSecret, endpoint.App, s.remove).Writes(machinesapi.SecretsVersion{}),
	}
}

// list lists an app's secrets.
func (s *Secrets) list(w http.ResponseWriter, r *endpoint.Request) error {
	version, secrets, err := s.read(r)
	if err != nil {
		return err
	}
	return endpoint.WriteJSON(w, http.StatusOK, listed(version, secrets))
}

func listed(version uint64, secrets []seal.Secret) machinesapi.SecretList {
	out := machinesapi.SecretList{Secrets: make([]machinesapi.Secret, len(secrets)), Version: version}
	for i := range secrets {
		out.Secrets[i] = machinesapi.FromSecret(&secrets[i])
	}
	return out
}

// get returns one secret.
func (s *Secrets) get(w http.ResponseWriter, r *endpoint.Request) error {
	_, secrets, err := s.read(r)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(secrets, func(x seal.Secret) bool { return x.Name == r.PathValue("name") })
	if i < 0 {
		return bourse.Errorf(bourse.CodeNotFound, "secret %s not found", bourse.Quoted(r.PathValue("name")))
	}
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.FromSecret(&secrets[i]))
}

// read returns the app's secrets and their latest version. It waits until the view contains the minimum version that
// the request specifies. Errors: invalid; not_found (the app); failed_precondition if that version has not arrived at
// this broker; unavailable.
func (s *Secrets) read(r *endpoint.Request) (uint64, []seal.Secret, error) {
	shows, err := endpoint.QueryBool(r, "show_secrets")
	if err != nil {
		return 0, nil, err
	}
	if shows {
		return 0, nil, bourse.Errorf(bourse.CodeInvalid, "invalid show_secrets: values are encrypted and never returned; to see a value, run a command in a machine")
	}
	least, err := leastVersion(r)
	if err != nil {
		return 0, nil, err
	}
	app, err := s.Apps.FindCached(r.Context(), r.App())
	if err != nil {
		return 0, nil, err
	}
	marks, err := s.await(r.Context(), app.ID, least)
	if err != nil {
		return 0, nil, err
	}
	secrets, err := s.View.Secrets(r.Context(), app.ID)
	return marks.Version(), secrets, err
}

// leastVersion returns the minimum secrets version that the request specifies. The request may use either of two
// parameters.
func leastVersion(r *endpoint.Request) (uint64, error) {
	var least uint64
	for _, name := range []string{"version", "min_version"} {
		text := r.URL.Query().Get(name)
		if text == "" {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return 0, bourse.Errorf(bourse.CodeInvalid, "invalid %s %s: use a number", name, bourse.Quoted(text))
		}
		least = max(least, n)
	}
	return least, nil
}

// set changes several secrets at once. A machine receives the changes the next time it starts.
func (s *Secrets) set(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.SetSecrets
	if err := endpoint.Decode(w, r, false, &in); err != nil {
		return err
	}
	if len(in.Values) == 0 {
		return bourse.Errorf(bourse.CodeInvalid, "invalid values: specify at least one secret with its value or null")
	}
	version, after, err := s.changeAt(r, in.Values)
	if err != nil {
		return err
	}
	return endpoint.WriteJSON(w, http.StatusOK, listed(version, after))
}

// setOne sets one secret.
func (s *Secrets) setOne(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.SetSecret
	if err := endpoint.Decode(w, r, false, &in); err != nil {
		return err
	}
	if in.Value == nil {
		return bourse.Errorf(bourse.CodeInvalid, "value is required")
	}
	name := r.PathValue("name")
	version, after, err := s.changeAt(r, map[string]*string{name: in.Value})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(after, func(x seal.Secret) bool { return x.Name == name })
	return endpoint.WriteJSON(w, http.StatusCreated, machinesapi.ChangedSecret{Secret: machinesapi.FromSecret(&after[i]), Version: version})
}

// remove removes one secret. If the secret does not exist, remove changes nothing and returns the current version, which
// clients use to look up the version.
func (s *Secrets) remove(w http.ResponseWriter, r *endpoint.Request) error {
	version, _, err := s.changeAt(r, map[string]*string{r.PathValue("name"): nil})
	if err != nil {
		return err
	}
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.SecretsVersion{Version: version})
}

// changeAt changes the secrets of the app in the request's path.
func (s *Secrets) changeAt(r *endpoint.Request, values map[string]*string) (uint64, []seal.Secret, error) {
	app, err := s.Apps.Find(r.Context(), r.App())
	if err != nil {
		return 0, nil, err
	}
	return s.change(r.Context(), app, values)
}
