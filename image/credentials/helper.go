package credentials

import (
	"cmp"
	"fmt"
	"os/exec"
	"strings"

	"github.com/docker/docker-credential-helpers/client"
	helpers "github.com/docker/docker-credential-helpers/credentials"

	"github.com/bourse-dev/bourse"
)

// hub is the name under which credential helpers store credentials for Docker Hub.
const hub = "https://index.docker.io/v1/"

// Of returns the credentials for a registry, given its host. They come from the registry's own credential helper, from
// the helper for all other registries, or from the file itself. Of returns the zero value if there are none. If it runs
// a helper, it blocks until the helper exits, which may take a while if the helper shows a dialog to the user.
func (f File) Of(host string) (Login, error) {
	helper := cmp.Or(f.Helpers[host], f.Store)
	if helper == "" {
		return f.Logins[host], nil
	}
	if strings.ContainsAny(helper, `/\`) {
		return Login{}, fmt.Errorf("invalid credential helper %s: use a name, not a path", bourse.Quoted(helper))
	}
	server := host
	if host == bourse.DefaultRegistry {
		server = hub
	}
	program := "docker-credential-" + helper
	if _, err := exec.LookPath(program); err != nil {
		return Login{}, fmt.Errorf("docker's configuration uses the credential helper %s, which is not installed", program)
	}
	got, err := client.Get(client.NewShellProgramFunc(program), server)
	switch {
	case helpers.IsErrCredentialsNotFound(err):
		return f.Logins[host], nil
	case err != nil:
		return Login{}, fmt.Errorf("%s: %w", program, err)
	case got.Username == "<token>": // this user name means that the secret is an identity token
		return Login{Secret: got.Secret}, nil
	}
	return Login{Name: got.Username, Secret: got.Secret}, nil
}
