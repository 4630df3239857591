// Package workspace decides which files of a sandbox's workspace the host must not take as they are.
//
// A step may write any file into its workspace. Programs on the host execute some files only because of
// their place: git runs its hooks and the commands in its configuration, a shell loads .envrc, an editor runs
// its tasks, and Custody runs the commands of custody.yaml. A step that could replace one of these on the host
// would leave the sandbox at the next git status. So they are copied out under another name.
package workspace
