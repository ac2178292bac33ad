package container

import (
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/bourse-dev/bourse"
)

// injectDevices adds the devices with the given qualified CDI names to a container's specification:
// their device nodes, mounts, hooks and whatever else the host's CDI specifications require. dirs
// lists the directories of the CDI specifications. They are read on each call, because they change
// when a device driver is updated. This cost is acceptable, because few containers have devices.
func injectDevices(dirs []string, s *specs.Spec, names []string) error {
	if len(names) == 0 {
		return nil
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "list the devices of this host: %w", err)
	}
	unknown, err := cache.InjectDevices(s, names...)
	if len(unknown) > 0 {
		return bourse.Errorf(bourse.CodeInvalid, "this host has no device %s; available: %s",
			bourse.Quoted(unknown[0]), orNone(cache.ListDevices()))
	}
	if err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "devices %s: %w", strings.Join(names, ", "), err)
	}
	return nil
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}
