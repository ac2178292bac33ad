package serve

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

// FileHeader explains a configuration file. Every file that a command writes begins
// with it.
const FileHeader = `# The servers of this host. Settings have the names of flags: see bourse serve worker --help.
# A setting that begins with # shows its default: remove the # to change it. If a flag may
# be repeated, its setting is a list. Settings above the tables apply to all servers.
# To check this file: bourse serve --check. To apply changes: systemctl reload bourse
`

// commonSettings lists the settings that operators change most often. The role "" stands for the
// settings above the tables.
var commonSettings = map[bourse.Role][]string{
	"":                {"log-level"},
	bourse.RoleBroker: {"server-name", "quotas", "lost-after"},
	bourse.RoleProxy:  {"http", "https", "tcp", "domain", "certificates", "acme", "drain"},
	bourse.RoleWorker: {"cpus", "memory", "disk", "gpus", "resource", "label", "overcommit", "allow-host", "images", "registry", "registry-auth", "ports", "mesh", "idle-after"},
}

// CommonSettings returns the settings that operators of a server change most often, as comments
// with their defaults. The role "" stands for the settings above the tables. It omits the settings
// in contained, which the file contains already.
func CommonSettings(role bourse.Role, contained ...string) string {
	return commented(role, func(name string) bool {
		return slices.Contains(commonSettings[role], name) && !slices.Contains(contained, name)
	})
}

// printDefaults prints a configuration file that lists every setting for servers with the
// given roles. The settings that a worker requires have values; all others are commented out.
func printDefaults(w io.Writer, roles []string) error {
	for _, role := range roles {
		if !slices.Contains(bourse.ServerRoles(), bourse.Role(role)) {
			return bourse.Errorf(bourse.CodeInvalid, "--print-defaults %s: use worker, broker and proxy, separated by commas", bourse.Quoted(role))
		}
	}
	var text strings.Builder
	text.WriteString(FileHeader + `
# The host's name in the cluster, its region, and the directory of its data.
name = "host-1"
region = "local"
data = "/var/lib/bourse"
`)
	required := []string{"name", "region", "data"}
	text.WriteString(commented("", func(name string) bool { return isCommon(name) && !slices.Contains(required, name) }))
	for _, role := range bourse.ServerRoles() {
		if slices.Contains(roles, string(role)) {
			fmt.Fprintf(&text, "\n[%s]\n%s", role, commented(role, func(name string) bool { return !isCommon(name) }))
		}
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// ownSettings lists the settings that every kind of server has, but that must differ
// between the servers of a host.
var ownSettings = []string{"listen", "gossip", "ready-file"}

// isCommon reports whether a setting belongs above the tables: every kind of server has it,
// and the servers of a host may share its value.
func isCommon(name string) bool {
	return !slices.Contains(ownSettings, name) && !slices.ContainsFunc(bourse.ServerRoles(), func(role bourse.Role) bool {
		return !settable(flagsOf(role), name)
	})
}

// commented returns a server's settings as comments with an explanation and the default.
// include selects settings by their names. The explanations begin with "# ", and the
// settings with "#".
func commented(role bourse.Role, include func(name string) bool) string {
	const width = 100
	var text strings.Builder
	flags := flagsOf(role) // for the role "", these include the flags that all servers share
	flags.VisitAll(func(flag *pflag.Flag) {
		if !settable(flags, flag.Name) || !include(flag.Name) {
			return
		}
		_, usage := pflag.UnquoteUsage(flag)
		text.WriteString("\n")
		for _, line := range cli.Wrap("# "+usage, width, 0) {
			text.WriteString("# " + strings.TrimPrefix(line, "# ") + "\n")
		}
		fmt.Fprintf(&text, "#%s = %s\n", flag.Name, defaultOf(flag))
	})
	return text.String()
}

// defaultOf returns a flag's default as a TOML value.
func defaultOf(flag *pflag.Flag) string {
	switch kind := flag.Value.Type(); {
	case kind == "stringSlice" || kind == "stringArray":
		return "[]"
	case kind == "int" || kind == "bool" && flag.DefValue != "":
		return flag.DefValue
	}
	return strconv.Quote(flag.DefValue)
}
