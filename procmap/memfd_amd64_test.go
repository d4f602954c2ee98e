package procmap

const sysMemfdCreate = 319
