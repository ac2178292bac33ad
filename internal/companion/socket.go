package companion

// SocketName is the name of a companion's socket in its directory.
const SocketName = "socket"
