package container

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bourse-dev/bourse/driver"
)

// setNetwork makes the container join n's namespace, and mounts the name resolution files in dir.
// If n is nil, the container uses the host's network and name resolution files.
func setNetwork(s *specs.Spec, n *driver.Network, dir string) {
	bind := func(target, source, mode string) {
		s.Mounts = append(s.Mounts, specs.Mount{
			Destination: target, Type: "bind", Source: source, Options: []string{"rbind", "rprivate", mode},
		})
	}
	var namespaces []specs.LinuxNamespace
	for _, ns := range s.Linux.Namespaces {
		if ns.Type != specs.NetworkNamespace {
			namespaces = append(namespaces, ns)
		}
	}
	if n == nil || n.Namespace == "" {
		s.Linux.Namespaces = namespaces
		for _, path := range []string{"/etc/resolv.conf", "/etc/hosts"} {
			if exists(path) {
				bind(path, path, "ro")
			}
		}
		return
	}
	s.Linux.Namespaces = append(namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: n.Namespace})
	s.Linux.Sysctl = map[string]string{
		// In its own network, a program may listen on ports below 1024 and send pings without
		// privileges.
		"net.ipv4.ip_unprivileged_port_start": "0",
		"net.ipv4.ping_group_range":           "0 2147483647",
	}
	if n.Hostname != "" {
		s.Hostname = n.Hostname
	}
	for _, name := range slices.Sorted(maps.Keys(networkFiles(n, s.Hostname))) {
		bind("/etc/"+name, filepath.Join(dir, name), "rw")
	}
}

// writeNetwork creates, in dir, the name resolution files that setNetwork mounts.
func writeNetwork(n *driver.Network, hostname, dir string) error {
	if n == nil || n.Namespace == "" {
		return nil
	}
	for name, text := range networkFiles(n, hostname) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

// networkFiles returns the contents of a container's name resolution files. The keys are the files'
// names in /etc.
func networkFiles(n *driver.Network, hostname string) map[string]string {
	var resolv strings.Builder
	for _, address := range n.Resolver {
		resolv.WriteString("nameserver " + oneLine(address) + "\n")
	}
	if len(n.Search) > 0 {
		resolv.WriteString("search " + oneLine(strings.Join(n.Search, " ")) + "\n")
	}
	if len(n.Options) > 0 {
		resolv.WriteString("options " + oneLine(strings.Join(n.Options, " ")) + "\n")
	}
	var hosts strings.Builder
	hosts.WriteString("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
	for _, line := range n.Hosts {
		hosts.WriteString(oneLine(line) + "\n")
	}
	return map[string]string{"resolv.conf": resolv.String(), "hosts": hosts.String(), "hostname": hostname + "\n"}
}

// oneLine replaces line breaks with spaces, so that a value cannot add lines to a file.
func oneLine(s string) string { return strings.NewReplacer("\n", " ", "\r", " ").Replace(s) }
