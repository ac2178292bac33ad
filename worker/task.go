package worker

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// task gives what the driver shall run for m's latest boot.
func (w *Worker) task(m *bourse.Machine, f fit) driver.Task {
	init := &m.Config.Init
	t := driver.Task{
		ID: taskOf(m), Image: m.Config.Image, Env: environment(m), Dir: init.WorkingDir, User: init.User,
		Limits: w.limits(m), Network: f.network, Mounts: f.mounts, Devices: m.Devices,
	}
	if !bourse.InRegistry(m.Config.Image) {
		t.Command, t.Name = init.Command(), m.Name
		return t
	}
	t.Image = imageName(m)
	t.Command, t.Entrypoint, t.Args, t.TTY = init.Exec, init.Entrypoint, init.Cmd, init.TTY
	t.Root = driver.Root{Runtime: m.Config.Runtime, Scratch: f.scratch, Files: files(&m.Config)}
	t.Root.ReadOnly = m.Config.Rootfs != nil && m.Config.Rootfs.ReadOnly
	return t
}

// imageName names m's image as the host knows it: by what it is, not by what
// it was called.
func imageName(m *bourse.Machine) string {
	if m.Image == nil {
		return m.Config.Image
	}
	ref := *m.Image
	ref.Tag = ""
	return ref.String()
}

const defaultFileMode = 0o644

func files(c *bourse.Config) []driver.File {
	out := make([]driver.File, len(c.Files))
	for i, f := range c.Files {
		out[i] = driver.File{Path: f.GuestPath, Data: f.RawValue, Mode: cmp.Or(f.Mode, defaultFileMode)}
	}
	return out
}

// A shared vCPU of the Machines API's own platform: so much of each period,
// and more from what was saved up before.
const (
	sharedQuota  = 5
	sharedPeriod = 80
)

// limits gives what m may use.
func (w *Worker) limits(m *bourse.Machine) driver.Limits {
	guest := m.Config.Guest
	whole := bourse.MilliCPU(guest.CPUs * 1000)
	l := driver.Limits{Memory: guest.MemoryMB, CPUWeight: whole, CPUQuota: whole}
	if m.Config.Image == bourse.ImagePull { // of a host that we know no more of
		return pullLimits(&m.Config)
	}
	if guest.CPUKind == bourse.CPUShared {
		l.CPUWeight = bourse.MilliCPU(m.Takes.Of(bourse.ResourceCPU))
		if w.cfg.SharedQuota {
			l.CPUQuota = max(1, whole*sharedQuota/sharedPeriod)
			l.CPUPeriod = sharedPeriod * time.Millisecond
			l.CPUBurst = time.Duration(guest.CPUs) * sharedQuota * time.Millisecond
		}
	}
	if bourse.InRegistry(m.Config.Image) && w.cfg.PIDs > 0 {
		l.PIDs = w.cfg.PIDs
	}
	return l
}

// environment gives what every machine is told about itself and its own
// environment, which wins. For an image that comes over the image's own; of
// the host's, only a program of the host needs anything.
func environment(m *bourse.Machine) []string {
	env := map[string]string{
		"FLY_APP_NAME":        string(m.App),
		"FLY_MACHINE_ID":      string(m.ID),
		"FLY_ALLOC_ID":        string(m.ID),
		"FLY_MACHINE_VERSION": string(m.Instance),
		"FLY_REGION":          string(m.Region),
		"FLY_IMAGE_REF":       m.Config.Image,
		"FLY_VM_MEMORY_MB":    strconv.FormatInt(int64(m.Config.Guest.MemoryMB), 10),
		"FLY_PROCESS_GROUP":   m.Config.Metadata["fly_process_group"],
	}
	if m.Config.Image == bourse.ImageHost {
		env["PATH"], env["HOME"] = os.Getenv("PATH"), os.Getenv("HOME")
	} else if m.Image != nil {
		env["FLY_IMAGE_REF"] = m.Image.String()
	}
	if m.PrivateIP.IsValid() {
		env["FLY_PRIVATE_IP"] = m.PrivateIP.String()
	}
	if m.Boot.Port != 0 {
		env[envPort] = strconv.Itoa(m.Boot.Port)
	} else if m.Config.Task != nil {
		env[envPort] = strconv.Itoa(warmPort(m))
	}
	maps.Copy(env, m.Config.Env)
	out := make([]string, 0, len(env))
	for k, v := range env {
		out = append(out, fmt.Sprintf("%s=%s", k, v))
	}
	slices.Sort(out)
	return out
}
