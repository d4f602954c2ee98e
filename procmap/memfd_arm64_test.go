package procmap

const sysMemfdCreate = 279
