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

// hub is what docker's helpers call the Docker Hub.
const hub = "https://index.docker.io/v1/"

// Of returns the credentials for a registry, by its host: those of its helper, of the
// helper of all registries, or those in the file; none is the zero value. A helper may
// show a person a window, and takes as long as it takes.
func (f File) Of(host string) (Login, error) {
	helper := cmp.Or(f.Helpers[host], f.Store)
	if helper == "" {
		return f.Logins[host], nil
	}
	if strings.ContainsAny(helper, `/\`) {
		return Login{}, fmt.Errorf("credential helper %s: a name, not a path", bourse.Quoted(helper))
	}
	server := host
	if host == bourse.DefaultRegistry {
		server = hub
	}
	program := "docker-credential-" + helper
	if _, err := exec.LookPath(program); err != nil {
		return Login{}, fmt.Errorf("docker's configuration keeps credentials with %s, which is not there", program)
	}
	got, err := client.Get(client.NewShellProgramFunc(program), server)
	switch {
	case helpers.IsErrCredentialsNotFound(err):
		return f.Logins[host], nil
	case err != nil:
		return Login{}, fmt.Errorf("%s: %w", program, err)
	case got.Username == "<token>": // as helpers mark an identity token
		return Login{Secret: got.Secret}, nil
	}
	return Login{Name: got.Username, Secret: got.Secret}, nil
}
