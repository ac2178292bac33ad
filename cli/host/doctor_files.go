package host

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/internal/admission"
)

// readConfig reads the configuration. servers is nil only if there is no configuration. If
// the configuration is invalid, servers contains those servers whose settings could be
// read; it may be empty.
func readConfig(path string) (found []finding, servers []serve.Server) {
	const name = "configuration"
	list, err := serve.CheckFile(path)
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return []finding{ok(name, "%s does not exist: this host is not part of a cluster, or was set up without bourse init and bourse join", path)}, nil
	}
	servers = append([]serve.Server{}, list...)
	if list == nil && errors.Is(err, fs.ErrPermission) {
		return []finding{failed(name, "correct "+path, err)}, servers
	}
	if err != nil {
		for line := range strings.Lines(cli.MessageOf(err)) {
			found = append(found, problem(name, "correct "+path+", then reload it: systemctl reload bourse", "%s", strings.TrimSpace(line)))
		}
		return found, servers
	}
	var roles []string
	for _, s := range servers {
		roles = append(roles, string(s.Role))
	}
	return []finding{ok(name, "%s: %s", path, strings.Join(roles, ", "))}, servers
}

// checkPorts checks that the ports of all kinds of servers are free. It is called on
// hosts that are not part of a cluster.
func checkPorts(ctx context.Context, s *cli.Shell) []finding {
	const name = "ports"
	h := setup{shell: s}
	for _, role := range bourse.ServerRoles() {
		h.roles = append(h.roles, string(role))
	}
	err := h.find(ctx)
	if err == nil {
		err = h.portsFree(ctx)
	}
	if err != nil {
		return []finding{warning(name, cmp.Or(strings.Join(cli.Hints(err), "; "), "bourse init --help"), "%s", cli.MessageOf(err))}
	}
	return []finding{ok(name, "the ports of all servers are free at %s", h.address)}
}

// checkCredentials checks the permissions of the configuration and the credentials, and
// the validity of each certificate.
func checkCredentials(config string, servers []serve.Server, now time.Time) []finding {
	var found []finding
	if len(servers) > 0 {
		found = checkPrivate("configuration", statusWarning, config)
	}
	var dirs []string
	for _, s := range servers {
		if s.Credentials.Dir == "" || slices.Contains(dirs, s.Credentials.Dir) {
			continue
		}
		dirs = append(dirs, s.Credentials.Dir)
		dir := admission.Dir(s.Credentials.Dir)
		files := []string{dir.CAKey(), dir.Issuer(), dir.GossipKey(), dir.Tokens(), dir.SecretsKey()}
		for _, other := range servers {
			files = append(files, dir.Server(other.Name))
		}
		if private := checkPrivate("credentials", statusProblem, files...); len(private) > 0 {
			found = append(found, private...)
		} else {
			found = append(found, ok("credentials", "only their owner can read the files in %s", dir))
		}
		found = append(found, checkCA(dir, now)...)
		found = append(found, checkIssuer(dir, now)...)
	}
	for _, s := range servers {
		if s.Credentials.TLS() {
			found = append(found, checkCertificate(&s, now))
		}
	}
	return found
}

// checkPrivate returns a finding with the given status for each file that other users can
// read. Files that do not exist are skipped.
func checkPrivate(name string, is status, files ...string) (found []finding) {
	for _, path := range files {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			found = append(found, failed(name, "check the permissions of "+path, err))
			continue
		}
		const others = 0o007
		dir, err := os.Stat(filepath.Dir(path))
		if info.Mode().Perm()&others == 0 || err == nil && dir.Mode().Perm()&others == 0 {
			continue
		}
		found = append(found, finding{name, is, path + " can be read by other users", "chmod 600 " + path})
	}
	return found
}

// checkCA checks when the cluster's CA expires. While one CA replaces another, it checks
// both.
func checkCA(dir admission.Dir, now time.Time) (found []finding) {
	const name, try = "CA", "copy ca.pem from another host of the cluster"
	text, err := os.ReadFile(dir.CA())
	if err != nil {
		return []finding{failed(name, try, err)}
	}
	bundle, err := admission.ParseBundle(text)
	if err != nil {
		return []finding{problem(name, try, "%s: %s", dir.CA(), cli.MessageOf(err))}
	}
	for _, ca := range bundle.CAs {
		found = append(found, checkAuthority(name, "bourse credentials rotate ca, where an operator is logged in", ca.NotAfter, now))
	}
	return found
}

// checkIssuer checks a broker's issuer, if the host has one.
func checkIssuer(dir admission.Dir, now time.Time) []finding {
	const name = "issuer"
	const try = "bourse credentials issuer, where ca.key is, then copy issuer.pem to the brokers: without a valid one, no host can join and no certificate is renewed"
	pair, err := os.ReadFile(dir.Issuer())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return []finding{failed(name, try, err)}
	}
	issuer, err := admission.ParseCA(admission.Pair{Cert: pair, Key: pair})
	if err != nil {
		return []finding{problem(name, try, "%s: %s", dir.Issuer(), cli.MessageOf(err))}
	}
	return []finding{checkAuthority(name, try, issuer.Expires(), now)}
}

// authorityWarning is the remaining validity below which the check of a CA or an issuer
// returns a warning.
const authorityWarning = 30 * 24 * time.Hour

func checkAuthority(name, try string, expires, now time.Time) finding {
	switch left := expires.Sub(now); {
	case left <= 0:
		return problem(name, try, "expired at %s", cli.Since(expires, now))
	case left < authorityWarning:
		return warning(name, try, "expires in %s", cli.Age(left))
	default:
		return ok(name, "expires in %s", cli.Age(left))
	}
}

// checkCertificate checks a server's certificate and key.
func checkCertificate(s *serve.Server, now time.Time) finding {
	name := "certificate of " + string(s.Name)
	replace := fmt.Sprintf("replace %s: bourse credentials cert --role %s %s, where issuer.pem or ca.key is", s.Credentials.Files.Pair, s.Role, s.Name)
	creds, err := admission.Load(s.Credentials.Files)
	if invalid, wrong := errors.AsType[x509.CertificateInvalidError](err); wrong && invalid.Reason == x509.Expired {
		return problem(name, "set the clock if it is wrong; otherwise "+replace, "not valid at %s: only from %s to %s",
			now.UTC().Format(time.RFC3339), invalid.Cert.NotBefore.UTC().Format(time.RFC3339), invalid.Cert.NotAfter.UTC().Format(time.RFC3339))
	}
	if err != nil {
		return failed(name, replace, err)
	}
	if who := (admission.Identity{ID: s.Name, Role: s.Role}); creds.Self() != who {
		return problem(name, replace, "%s is the certificate of %s %s", s.Credentials.Files.Pair, creds.Self().Role, creds.Self().ID)
	}
	leaf := creds.Client().Certificates[0].Leaf
	left, life := leaf.NotAfter.Sub(now), leaf.NotAfter.Sub(leaf.NotBefore)
	if left < 24*time.Hour || left < life/4 {
		try := replace
		if life <= admission.RenewedLife+24*time.Hour { // servers renew such certificates themselves
			try = "check that a broker with issuer.pem is running and can be reached, and look for \"certificate renewal failed\" in the log of " + string(s.Name)
		}
		return warning(name, try, "expires in %s", cli.Age(left))
	}
	return ok(name, "expires in %s", cli.Age(left))
}
