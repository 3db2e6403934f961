// Package files reads the files that a user names, and writes files as a whole. It keeps no state,
// and is safe for concurrent use.
//
// A name from a user (configuration, certificates, scenarios, images) may refer to anything, such
// as a pipe without a writer or an endless device, so only regular files up to a limit are read
// (inputfile.go).
//
// Whatever happens while a file is written, a power failure included, its name has the former
// contents or the new ones, and never a part of them (wholefile.go). A crash may leave a file
// .hdmlp-*.tmp beside it. This is for small files.
package files
