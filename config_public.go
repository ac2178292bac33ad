package bourse

// Public returns the part of c that every server may hold: without what tenants
// put their secrets into, the environment, files, and the programs beside the
// first one, which have environments too. Only the machine's worker has those.
func (c Config) Public() Config {
	c.Env, c.Files = nil, nil
	c.Processes, c.Containers = nil, nil
	return c
}

// envPort is the variable of the environment that a worker looks at before it
// runs anything: with it a machine needs no port of the host's.
const envPort = "PORT"

// asked returns the part of c that a quote needs: neither what the program is
// nor what it is told.
func (c Config) asked() Config {
	_, port := c.Env[envPort]
	out := c.Public()
	out.Init, out.Metadata, out.Kept = Init{}, nil, Kept{}
	out.Schedule, out.Standbys, out.DNS = "", nil, nil
	if port {
		out.Env = map[string]string{envPort: ""}
	}
	if c.ImageKind() != RegistryImage && c.Image != "" {
		out.Init.Exec = []string{"true"} // some program: such an image is nothing without
	}
	return out
}
