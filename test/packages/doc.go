// Package packages tests the Debian package and the container image.
//
// It installs, upgrades and removes the package on a Debian host with systemd. The host is a
// virtual machine (package vmtest) with the file system that scripts/need-debian builds. The
// image runs in a containerd on this host.
package packages
